#include "server/text_logprobs.h"

#include <gmock/gmock.h>

#include "server/api_test_fixture.h"
#include "server/openai_json.h"

namespace gannet::server {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

class TextLogprobsTest : public ApiTest {
 protected:
  static std::vector<Token> tokens_of(const std::string& text) {
    std::vector<Token> tokens;
    const auto ids = tokenizer().encode(text).value();
    for (const int32_t id : ids) tokens.push_back({.id = id, .logprob = {}, .top_logprobs = {}, .finish = {}});
    return tokens;
  }
  std::string take(std::string_view text) {
    std::string taken;
    for (const auto& token : logprobs_.take(text)) taken += token_display(tokenizer(), token.id);
    return taken;
  }
  TextLogprobs logprobs_{tokenizer()};
};

TEST_F(TextLogprobsTest, FindsTokensHoweverTheTextIsCut) {
  const std::string text = "Hello there, good people";
  for (size_t cut = 0; cut <= text.size(); ++cut) {
    TextLogprobs logprobs(tokenizer());
    logprobs.push(tokens_of(text));
    auto taken = logprobs.take(text.substr(0, cut));
    for (auto& token : logprobs.take(text.substr(cut))) taken.push_back(token);
    EXPECT_EQ(taken.size(), tokens_of(text).size()) << cut;
  }
}

TEST_F(TextLogprobsTest, PassesOverWhatIsNoText) {
  logprobs_.push(tokens_of("Hm</think>\n\nHello<｜end▁of▁sentence｜>"));
  EXPECT_EQ(take("Hm"), "Hm");
  EXPECT_EQ(take("Hello"), "Hello");
  EXPECT_THAT(logprobs_.take("more"), IsEmpty());
}

TEST_F(TextLogprobsTest, GoesOnBehindBytesThatAreNoText) {
  logprobs_.push(tokens_of("a"));
  const auto broken = tokens_of("é");
  logprobs_.push({broken.front()});
  logprobs_.push(tokens_of("b"));
  const auto taken = logprobs_.take(broken.size() == 1 ? "aéb"
                                                       : "a\xef\xbf\xbd"
                                                         "b");
  EXPECT_EQ(taken.front().id, tokens_of("a").front().id);
  EXPECT_EQ(taken.back().id, tokens_of("b").front().id);
}

}  // namespace
}  // namespace gannet::server
