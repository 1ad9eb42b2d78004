#include "server/answer.h"

#include <utility>

namespace gannet::server {
namespace {

constexpr size_t kTokensPerStep = 512;  // keeps one step short when a slow reader has let many pile up

bool continues(const text::Delta& last, const text::Delta& next) {
  return last.kind == next.kind && last.call == next.call && next.kind != text::Delta::Kind::tool_call;
}

}  // namespace

void append_delta(std::vector<text::Delta>& deltas, text::Delta delta) {
  if (!deltas.empty() && continues(deltas.back(), delta)) {
    deltas.back().text += delta.text;
  } else {
    deltas.push_back(std::move(delta));
  }
}

Answer::Answer(std::unique_ptr<Generation> generation, text::TokenMessageParser parser, bool include_stop)
    : generation_(std::move(generation)), parser_(std::move(parser)), include_stop_(include_stop) {}

Answer::Step Answer::advance() {
  Step step;
  while (!ended_) {
    auto progress = generation_->take(kTokensPerStep);
    const bool took_some = !progress.tokens.empty();
    take_tokens(std::move(progress.tokens), step);
    if (!ended_ && progress.end) {
      const auto& reason = *progress.end;
      if (!reason) {
        error_ = reason.error();
      } else if (*reason == FinishReason::cancelled) {
        error_ = Error{ErrorKind::failed, "the request was cancelled before its answer was complete"};
      }
      const bool whole = reason && *reason == FinishReason::stop;
      end(whole ? text::StopCause::stop : text::StopCause::length, step);
    }
    if (!took_some || !step.deltas.empty()) break;
  }
  return step;
}

void Answer::take_tokens(std::vector<Token> tokens, Step& step) {
  for (auto& token : tokens) {
    ++completion_tokens_;
    for (auto& delta : parser_.push(token.id)) append_delta(step.deltas, std::move(delta));
    if (parser_.in_reasoning()) ++reasoning_tokens_;
    step.tokens.push_back(std::move(token));
    if (parser_.done()) {
      generation_->cancel();
      end(text::StopCause::stop, step);
      return;
    }
  }
}

void Answer::end(text::StopCause cause, Step& step) {
  ended_ = true;
  for (auto& delta : parser_.finish(cause)) append_delta(step.deltas, std::move(delta));
  const auto& stop = parser_.message().stop_sequence;
  if (include_stop_ && stop) {
    append_delta(step.deltas, text::Delta{.kind = text::Delta::Kind::content, .call = 0, .text = *stop});
  }
}

std::string Answer::content() const {
  const auto& whole = message();
  return include_stop_ && whole.stop_sequence ? whole.content + *whole.stop_sequence : whole.content;
}

}  // namespace gannet::server
