#include <gtest/gtest.h>

#include <random>

#include "text/test_data.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

namespace gannet::text {
namespace {

TEST(Detokenizer, HoldsBackUnfinishedCharacters) {
  const Tokenizer& tokenizer = test_data::released_tokenizer();
  Detokenizer detokenizer(tokenizer);
  EXPECT_EQ(detokenizer.push(80300), "");  // the first three bytes of U+1F642
  EXPECT_EQ(detokenizer.push(227), "🙂");
  EXPECT_EQ(detokenizer.push(19923), "Hello");
  EXPECT_EQ(detokenizer.finish(), "");
}

TEST(Detokenizer, ReplacesWhatNeverBecomesACharacter) {
  const Tokenizer& tokenizer = test_data::released_tokenizer();
  Detokenizer detokenizer(tokenizer);
  EXPECT_EQ(detokenizer.push(80300), "");
  EXPECT_EQ(detokenizer.push(128804), "\uFFFD<｜Assistant｜>");
  EXPECT_EQ(detokenizer.push(80300), "");
  EXPECT_EQ(detokenizer.finish(), "\uFFFD");
  EXPECT_EQ(detokenizer.finish(), "");
}

TEST(Detokenizer, UnknownIdsAddNothing) {
  Detokenizer detokenizer(test_data::small_tokenizer());
  EXPECT_EQ(detokenizer.push(-1) + detokenizer.push(1 << 30) + detokenizer.finish(), "");
}

// Byte tokens make broken text likely; every piece must be whole, and all together the decoded text.
TEST(Detokenizer, PiecesJoinToTheDecodedText) {
  const Tokenizer& tokenizer = test_data::small_tokenizer();
  std::mt19937 random(3);
  std::uniform_int_distribution<int32_t> any_id(0, tokenizer.vocab_size() - 1);
  std::uniform_int_distribution<size_t> any_length(0, 30);
  for (int round = 0; round < 2000; ++round) {
    std::vector<int32_t> ids(any_length(random));
    for (int32_t& id : ids) id = any_id(random);
    Detokenizer detokenizer(tokenizer);
    std::string joined;
    for (const int32_t id : ids) {
      const std::string piece = detokenizer.push(id);
      ASSERT_EQ(valid_utf8_length(piece), piece.size());
      joined += piece;
    }
    joined += detokenizer.finish();
    ASSERT_EQ(joined, tokenizer.decode(ids).value());
  }
}

}  // namespace
}  // namespace gannet::text
