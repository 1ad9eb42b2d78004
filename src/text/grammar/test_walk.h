#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "text/grammar/answer_grammar.h"
#include "text/template/control_tokens.h"
#include "text/test_data.h"

// Random answers under a constraint, for the tests of this folder.
namespace gannet::text::test_walk {

inline int32_t eos_of(const Tokenizer& tokenizer) {
  return *tokenizer.token_id(control::kEnd);
}

// One compiler for each tokenizer: they are slow to set up.
inline GrammarCompiler& compiler_of(const Tokenizer& tokenizer) {
  static GrammarCompiler released(test_data::released_tokenizer(), test_data::released_tokenizer().vocab_size(),
                                  eos_of(test_data::released_tokenizer()));
  static GrammarCompiler small(test_data::small_tokenizer(), test_data::small_tokenizer().vocab_size() + 40,
                               eos_of(test_data::small_tokenizer()));
  return &tokenizer == &test_data::small_tokenizer() ? small : released;
}

inline std::vector<uint32_t> mask_for(const Tokenizer& tokenizer) {
  const size_t padding = &tokenizer == &test_data::small_tokenizer() ? 40 : 0;
  return std::vector<uint32_t>((static_cast<size_t>(tokenizer.vocab_size()) + padding + 31) / 32);
}

inline std::vector<int32_t> allowed_ids(const std::vector<uint32_t>& mask) {
  std::vector<int32_t> ids;
  for (size_t i = 0; i < mask.size() * 32; ++i) {
    if ((mask[i / 32] >> (i % 32) & 1) != 0) ids.push_back(static_cast<int32_t>(i));
  }
  return ids;
}

// What leads to the end of a text: the token of a tag, the slash of a closing tag, a quote or a bracket, a tag.
inline std::optional<int32_t> closing_id(const Tokenizer& tokenizer, const std::vector<int32_t>& allowed, bool in_tag,
                                         bool tags_first) {
  const auto is_allowed = [&](std::optional<int32_t> id) {
    return id && std::binary_search(allowed.begin(), allowed.end(), *id);
  };
  if (in_tag && is_allowed(tokenizer.token_id("/"))) return tokenizer.token_id("/");
  for (const std::string_view text : {control::kEnd, control::kDsml}) {
    if (is_allowed(tokenizer.token_id(text))) return tokenizer.token_id(text);
  }
  for (const std::string_view text : {tags_first ? "<" : "\"", "\"", "}", "]", "<", ">"}) {
    if (is_allowed(tokenizer.token_id(text))) return tokenizer.token_id(text);
  }
  return {};
}

// Draws evenly from what is allowed, and after a while rather what ends something. Stops at the end of the answer; no
// ids if it did not come.
inline std::vector<int32_t> walk(const Tokenizer& tokenizer, TokenConstraint& constraint, uint64_t seed) {
  constexpr size_t kFree = 30;
  constexpr size_t kMost = 1000;
  constexpr std::string_view kPlain = "abceTxy01-@.:";
  std::mt19937_64 random(seed);
  std::vector<int32_t> ids;
  auto mask = mask_for(tokenizer);
  while (ids.size() < kMost) {
    EXPECT_TRUE(constraint.active());
    constraint.fill_mask(mask);
    const auto allowed = allowed_ids(mask);
    if (allowed.empty() || allowed.back() >= tokenizer.vocab_size()) {
      ADD_FAILURE() << "nothing or no token is allowed after " << ids.size() << " tokens";
      return {};
    }
    int32_t id = allowed[random() % allowed.size()];
    const bool in_tag = !ids.empty() && tokenizer.token_bytes(ids.back()).ends_with('<');
    const auto closing = closing_id(tokenizer, allowed, in_tag, random() % 2 == 0);
    const uint64_t dice = random() % 8;
    if (closing && dice < (ids.size() > kFree ? 6U : 1U)) {
      id = *closing;
    } else if (ids.size() > kFree) {
      const auto plain = tokenizer.token_id(kPlain.substr(random() % kPlain.size(), 1));
      if (plain && std::binary_search(allowed.begin(), allowed.end(), *plain)) id = *plain;
    }
    if (id == eos_of(tokenizer)) return ids;
    constraint.accept(id);
    ids.push_back(id);
  }
  ADD_FAILURE() << "no end after " << kMost << " tokens: " << tokenizer.decode(ids)->substr(0, 300);
  return {};
}

}  // namespace gannet::text::test_walk
