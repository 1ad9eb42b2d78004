#include "server/chat_client.h"

#include "server/api_test_fixture.h"

namespace gannet::server {
namespace {

using testing::HasSubstr;

constexpr const char* kBody =
    R"({"messages": [{"role": "user", "content": "hi"}], "stream": true, "stream_options": {"include_usage": true}})";

// Both backends must show the same.
class ChatClientTest : public ApiTest, public testing::WithParamInterface<bool> {
 protected:
  std::unique_ptr<ChatBackend> backend() {
    if (!GetParam()) return local_chat(model_);
    start();
    return remote_chat(Url{.host = "127.0.0.1", .port = server_->port(), .path = "/v1"}, "");
  }

  ChatListener listener() {
    ChatListener listener;
    listener.on_reasoning = [this](std::string_view text) { shown_ += "R:" + std::string(text); };
    listener.on_content = [this](std::string_view text) { shown_ += "C:" + std::string(text); };
    listener.keep_going = [] { return true; };
    return listener;
  }

  std::string shown_;
};

TEST_P(ChatClientTest, ShowsATurn) {
  script("why</think>Hello");
  const auto turn = backend()->ask(kBody, listener());
  ASSERT_TRUE(turn) << turn.error().message;
  EXPECT_EQ(turn->reasoning, "why");
  EXPECT_EQ(turn->content, "Hello");
  EXPECT_EQ(turn->finish_reason, "stop");
  EXPECT_EQ(turn->completion_tokens, engine_.script.size());
  EXPECT_GT(turn->prompt_tokens, 0);
  EXPECT_EQ(shown_, "R:whyC:Hello");
}

TEST_P(ChatClientTest, SaysWhyARequestWasRefused) {
  const auto turn = backend()->ask(R"({"messages": 5, "stream": true})", listener());
  ASSERT_FALSE(turn);
  EXPECT_THAT(turn.error().message, HasSubstr("messages"));
}

TEST_P(ChatClientTest, SaysWhatBroke) {
  script("He", false);
  engine_.failure = Error{ErrorKind::failed, "the engine broke"};
  const auto turn = backend()->ask(kBody, listener());
  ASSERT_FALSE(turn);
  EXPECT_THAT(turn.error().message, HasSubstr("the engine broke"));
}

TEST_P(ChatClientTest, StopsWhenItIsTold) {
  engine_.by_steps = true;
  script("Hello");
  auto listening = listener();
  listening.keep_going = [this] { return engine_.unfinished() == 0; };
  const auto turn = backend()->ask(kBody, listening);
  ASSERT_TRUE(turn);
  EXPECT_EQ(turn->finish_reason, "");
  EXPECT_TRUE(engine_.wait_for_cancelled(1));
}

INSTANTIATE_TEST_SUITE_P(Backends, ChatClientTest, testing::Values(false, true),
                         [](const testing::TestParamInfo<bool>& backend) {
                           return backend.param ? "Remote" : "Local";
                         });

}  // namespace
}  // namespace gannet::server
