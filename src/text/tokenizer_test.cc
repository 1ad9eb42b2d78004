#include "text/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "text/test_data.h"

namespace gannet::text {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<int32_t> encode(std::string_view text) {
  return test_data::released_tokenizer().encode(text).value();
}
std::vector<int32_t> plain(std::string_view text) {
  return test_data::released_tokenizer().encode_plain(text).value();
}

TEST(Tokenizer, KnownTexts) {
  EXPECT_THAT(encode(""), ElementsAre());
  EXPECT_THAT(encode("Hello, world!"), ElementsAre(19923, 14, 2058, 3));
  EXPECT_THAT(encode("  leading spaces"), ElementsAre(223, 6646, 13564));
  EXPECT_THAT(encode("a\n\n\nb"), ElementsAre(67, 6328, 68));
  EXPECT_THAT(encode("1234567"), ElementsAre(6895, 18009, 25));
  EXPECT_THAT(encode("naïve café"), ElementsAre(2720, 91223, 57664));
  EXPECT_THAT(encode("日本語テスト123"), ElementsAre(88768, 109288, 6895));
  EXPECT_THAT(encode("🙂🙂"), ElementsAre(80300, 227, 80300, 227));
  EXPECT_THAT(encode("e\u0301"), ElementsAre(71, 17793));
}

TEST(Tokenizer, PlainTextNeverBecomesAnAddedToken) {
  EXPECT_THAT(encode("<think>"), ElementsAre(128821));
  EXPECT_THAT(plain("<think>"), ElementsAre(30, 37947, 32));
  EXPECT_THAT(encode("<｜DSML｜ invoke name=\"f\">"), ElementsAre(30, 128825, 34756, 2329, 1281, 72, 3320));
  EXPECT_THAT(encode("</｜DSML｜ calls>"), ElementsAre(1718, 128825, 10699, 32));

  const Tokenizer& tokenizer = test_data::released_tokenizer();
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    if (!tokenizer.is_added(id)) continue;
    for (const int32_t plain_id : plain(tokenizer.token_text(id))) ASSERT_FALSE(tokenizer.is_added(plain_id)) << id;
    ASSERT_THAT(encode(tokenizer.token_text(id)), ElementsAre(id));
  }
}

TEST(Tokenizer, RefusesTextThatIsNotUtf8) {
  const Tokenizer& tokenizer = test_data::small_tokenizer();
  for (const auto& result : {tokenizer.encode("caf\xE9!"), tokenizer.encode_plain("caf\xE9!")}) {
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().kind, ErrorKind::invalid_input);
    EXPECT_THAT(result.error().message, HasSubstr("byte offset 3"));
  }
  EXPECT_FALSE(tokenizer.encode("\xED\xA0\x80"));
  EXPECT_TRUE(tokenizer.encode(std::string_view("\0", 1)));
}

TEST(Tokenizer, TokensByIdAndText) {
  const Tokenizer& tokenizer = test_data::released_tokenizer();
  EXPECT_EQ(tokenizer.vocab_size(), 129280);
  EXPECT_EQ(tokenizer.token_text(270), "Ġthe");
  EXPECT_EQ(tokenizer.token_bytes(270), " the");
  EXPECT_EQ(tokenizer.token_id("Ġthe"), 270);
  EXPECT_EQ(tokenizer.token_id("<｜System｜>"), 128799);
  EXPECT_EQ(tokenizer.token_bytes(128799), "<｜System｜>");
  EXPECT_EQ(tokenizer.token_id(" the"), std::nullopt);
  EXPECT_TRUE(tokenizer.is_added(0));
  EXPECT_TRUE(tokenizer.is_added(128803));
  EXPECT_FALSE(tokenizer.is_added(270));
  for (const int32_t unknown : {-1, 129280, INT32_MAX, INT32_MIN}) {
    EXPECT_FALSE(tokenizer.is_added(unknown));
    EXPECT_EQ(tokenizer.token_bytes(unknown), "");
    EXPECT_EQ(tokenizer.token_text(unknown), "");
  }
}

TEST(Tokenizer, DecodeRefusesUnknownIds) {
  const Tokenizer& tokenizer = test_data::released_tokenizer();
  const std::vector<int32_t> ids = {270, 129280};
  const auto text = tokenizer.decode(ids);
  ASSERT_FALSE(text);
  EXPECT_THAT(text.error().message, HasSubstr("129280 at position 1"));
  EXPECT_FALSE(tokenizer.decode(std::vector<int32_t>{-1}));
  EXPECT_EQ(tokenizer.decode({}), "");
}

// One pre-token of 300,000 bytes; a quadratic merge would take an hour.
TEST(Tokenizer, LongPreTokens) {
  std::string text;
  while (text.size() < 300'000) text += "abcdefghijklmnopqrstuvwxyz";
  const auto start = std::chrono::steady_clock::now();
  const std::vector<int32_t> ids = encode(text);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
  EXPECT_EQ(test_data::released_tokenizer().decode(ids), text);
}

TEST(Tokenizer, ThreadsShareOne) {
  const Tokenizer tokenizer = Tokenizer::parse(test_data::read("tokenizer-test.json"), "test").value();
  const std::string text = "Several threads, één <think>tokenizer</think> 世界 123456\n\n";
  const auto expected = tokenizer.encode(text).value();
  std::vector<std::thread> threads;
  std::atomic<int> equal = 0;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int round = 0; round < 50; ++round) {
        equal += tokenizer.encode(text) == expected && tokenizer.decode(expected) == text;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(equal, 200);
}

TEST(Tokenizer, FilesThatCannotBeRead) {
  for (const char* path : {"no/such/tokenizer.json", GANNET_TEST_DATA}) {
    const auto tokenizer = Tokenizer::load(path);
    ASSERT_FALSE(tokenizer);
    EXPECT_EQ(tokenizer.error().kind, ErrorKind::invalid_input);
    EXPECT_THAT(tokenizer.error().message, HasSubstr(path));
  }
  EXPECT_TRUE(Tokenizer::load(GANNET_TEST_DATA "/text/tokenizer-test.json"));
}

}  // namespace
}  // namespace gannet::text
