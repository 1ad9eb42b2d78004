#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "text/pre_tokenizer.h"
#include "text/test_data.h"
#include "text/tokenizer.h"

namespace gannet::text {
namespace {

using nlohmann::json;

// The text of a case; nothing for those that only decode.
std::optional<std::string> text_of(const json& frozen) {
  if (frozen.contains("text")) return frozen.at("text").get<std::string>();
  if (!frozen.contains("rep")) return std::nullopt;
  std::string text;
  for (int i = 0; i < frozen.at("rep").at(1).get<int>(); ++i) text += frozen.at("rep").at(0).get<std::string>();
  return text;
}

// End of each pre-token, in code points.
std::vector<size_t> pre_token_ends(std::string_view text) {
  std::vector<size_t> ends;
  size_t code_points = 0;
  for (const std::string_view piece : pre_tokenize(text)) {
    for (const char byte : piece) code_points += (byte & 0xC0) != 0x80;
    ends.push_back(code_points);
  }
  return ends;
}

// Compares `ids` with the members `prefix`ids, or `prefix`n and `prefix`h. Says whether the case has them.
bool expect_ids(const json& frozen, const std::string& prefix, const std::vector<int32_t>& ids) {
  if (frozen.contains(prefix + "ids")) {
    EXPECT_EQ(ids, frozen.at(prefix + "ids").get<std::vector<int32_t>>());
    return true;
  }
  if (!frozen.contains(prefix + "n")) return false;
  EXPECT_EQ(ids.size(), frozen.at(prefix + "n").get<size_t>());
  EXPECT_EQ(test_data::short_hash(ids), frozen.at(prefix + "h").get<std::string>());
  return true;
}

std::string streamed(const Tokenizer& tokenizer, std::span<const int32_t> ids) {
  Detokenizer detokenizer(tokenizer);
  std::string text;
  for (const int32_t id : ids) text += detokenizer.push(id);
  return text + detokenizer.finish();
}

void check_encoding(const Tokenizer& tokenizer, const json& frozen, const std::string& text) {
  const auto ids = tokenizer.encode(text).value();
  EXPECT_TRUE(expect_ids(frozen, "", ids));
  const auto plain_ids = tokenizer.encode_plain(text).value();
  if (!expect_ids(frozen, "plain_", plain_ids)) {
    EXPECT_EQ(plain_ids, ids);
  }
  if (frozen.contains("pre")) {
    EXPECT_EQ(pre_token_ends(text), frozen.at("pre").get<std::vector<size_t>>());
  }
  EXPECT_EQ(tokenizer.decode(ids), text);
  EXPECT_EQ(streamed(tokenizer, ids), text);
}

void check_file(const Tokenizer& tokenizer, std::string_view name, size_t cases) {
  const auto lines = test_data::read_lines(name);
  EXPECT_EQ(lines.size(), cases);
  for (const std::string& line : lines) {
    const json frozen = json::parse(line);
    SCOPED_TRACE(frozen.at("id").get<std::string>());
    if (const auto text = text_of(frozen)) {
      check_encoding(tokenizer, frozen, *text);
    } else {
      const auto ids = frozen.at("ids").get<std::vector<int32_t>>();
      EXPECT_EQ(tokenizer.decode(ids), frozen.at("dec").get<std::string>());
      EXPECT_EQ(streamed(tokenizer, ids), frozen.at("dec").get<std::string>());
    }
  }
}

TEST(TokenizerFrozen, Released) {
  check_file(test_data::released_tokenizer(), "tokenize.jsonl", 2521);
}
TEST(TokenizerFrozen, Small) {
  check_file(test_data::small_tokenizer(), "tiny_tokenize.jsonl", 216);
}

}  // namespace
}  // namespace gannet::text
