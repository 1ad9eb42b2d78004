#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace gannet::text {

// Byte-level BPE as a Hugging Face tokenizer.json describes it, with the released model's pre-tokenizer. Immutable
// after loading; safe to use from several threads.
class Tokenizer {
 public:
  // Errors (invalid_input) name the file, the field, what was found there and what would be right. Ids must be 0 to
  // N-1 without holes, and a pipeline other than the released model's is refused.
  static Result<Tokenizer> load(const std::filesystem::path& tokenizer_json);
  static Result<Tokenizer> parse(std::string_view json, std::string_view name);

  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  // Ids of `text`, added tokens recognised first (leftmost, longest). Text that is not UTF-8 is an error
  // (invalid_input, with the byte offset), and so is text of 2^31 bytes and more. O(n log n) in the longest word.
  Result<std::vector<int32_t>> encode(std::string_view text) const;
  // The same without added tokens: what user text must go through, so that it can never become a control token.
  Result<std::vector<int32_t>> encode_plain(std::string_view text) const;

  // The bytes that one id stands for (may be part of a character); empty for an id that is not in the vocabulary.
  std::string_view token_bytes(int32_t id) const;
  // The vocabulary's own spelling of an id (byte-level alphabet for ordinary tokens).
  std::string_view token_text(int32_t id) const;
  // Text of all ids; bytes that are no character become U+FFFD. Ids outside the vocabulary are an error.
  Result<std::string> decode(std::span<const int32_t> ids) const;

  // Id of a token by its spelling, added tokens first.
  std::optional<int32_t> token_id(std::string_view text) const;
  // Whether the id is an added token (control or placeholder), i.e. never produced by encode_plain.
  bool is_added(int32_t id) const;
  // Bytes of the longest token: a text of N bytes has at least N divided by that many tokens.
  size_t longest_token() const;
  // Largest id + 1.
  int32_t vocab_size() const;

 private:
  struct Impl;
  explicit Tokenizer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Engram's compressed token map (spec: tokens that normalise alike share one id).
// Returns [vocab_size] compressed ids, in order of first appearance, and their number. Ids beyond the tokenizer's
// vocabulary share one.
struct CompressedTokenMap {
  std::vector<int32_t> ids;
  int32_t size = 0;
};
CompressedTokenMap compressed_token_map(const Tokenizer& tokenizer, int32_t vocab_size);

// Turns ids into text as they come: a piece always ends on a character boundary, so joining all pieces gives the
// decoded text. Bytes that can never become a character are replaced by U+FFFD.
class Detokenizer {
 public:
  explicit Detokenizer(const Tokenizer& tokenizer) : tokenizer_(&tokenizer) {}
  // Text that is certain after this id; may be empty. Ids outside the vocabulary add nothing.
  std::string push(int32_t id);
  // What is left at the end: an unfinished character becomes U+FFFD.
  std::string finish();

 private:
  const Tokenizer* tokenizer_;
  std::string pending_;
};

}  // namespace gannet::text
