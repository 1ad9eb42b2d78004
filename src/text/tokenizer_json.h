#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "text/bpe.h"
#include "text/text_index.h"

namespace gannet::text {

struct Token {
  std::string text;   // the vocabulary's spelling
  std::string bytes;  // what it stands for: an added token's text itself, else the spelled bytes
  bool is_added = false;
};

// What a tokenizer.json says, checked.
struct TokenizerData {
  std::vector<Token> tokens;            // by id; no id is missing
  TextIndex id_of{0};                   // by text; its views are into `tokens`
  std::array<int32_t, 256> byte_ids{};  // ids of the single bytes
  MergeTable merges{0};
};

// Reads the text of a tokenizer.json. `name` stands for the file in error messages. Refuses everything whose effect on
// ids or text differs from the released model's pipeline: no normalizer, the pre-tokenizer of pre_tokenizer.h, a
// byte-level BPE model and the byte-level decoder.
Result<TokenizerData> read_tokenizer_json(std::string_view json, std::string_view name);

}  // namespace gannet::text
