#include "server/answer.h"

#include <fmt/format.h>

#include <random>
#include <utility>

#include "base/log.h"

namespace gannet::server {
namespace {

constexpr size_t kTokensPerStep = 512;  // keeps one step short when a slow reader has let many pile up

bool continues(const text::Delta& last, const text::Delta& next) {
  return last.kind == next.kind && last.call == next.call && next.kind != text::Delta::Kind::tool_call;
}

// As the official API makes them: ids sort in the order of the calls, and "ET" tells of a turn that was to think but
// did not, so that nobody misses its reasoning when it comes back.
std::string new_call_id(int call, bool empty_thinking) {
  return new_id(fmt::format("call_{:02}_{}", call, empty_thinking ? "ET_" : ""));
}

}  // namespace

void append_delta(std::vector<text::Delta>& deltas, text::Delta delta) {
  if (!deltas.empty() && continues(deltas.back(), delta)) {
    deltas.back().text += delta.text;
  } else {
    deltas.push_back(std::move(delta));
  }
}

std::string new_id(std::string_view prefix) {
  constexpr std::string_view kAlphabet = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
  constexpr int kLength = 24;
  // The system's random numbers: whoever knows the id of a response may go on from it, so nobody must guess one from
  // those that he was given.
  thread_local std::random_device random;
  std::uniform_int_distribution<size_t> pick(0, kAlphabet.size() - 1);
  std::string id(prefix);
  for (int i = 0; i < kLength; ++i) id += kAlphabet[pick(random)];
  return id;
}

Answer::Answer(std::unique_ptr<Generation> generation, text::TokenMessageParser parser, AnswerOptions options)
    : generation_(std::move(generation)), parser_(std::move(parser)), options_(std::move(options)) {}

Answer::Step Answer::advance() {
  Step step;
  while (!ended_) {
    auto progress = generation_->take(kTokensPerStep);
    if (progress.cached_tokens) cached_tokens_ = progress.cached_tokens;
    if (progress.prompt) prompt_logprobs_ = *std::move(progress.prompt);
    const bool took_some = !progress.tokens.empty();
    take_tokens(std::move(progress.tokens), step);
    if (!ended_ && progress.end) {
      const auto& reason = *progress.end;
      if (!reason) {
        error_ = reason.error();
      } else if (*reason == FinishReason::cancelled) {
        error_ = Error{ErrorKind::failed, "the request was cancelled before its answer was complete"};
      }
      const bool whole = reason && *reason == FinishReason::stop && !options_.prompt_only;
      end(whole ? text::StopCause::stop : text::StopCause::length, step);
    }
    if (!took_some || !step.deltas.empty()) break;
  }
  return step;
}

void Answer::take_tokens(std::vector<Token> tokens, Step& step) {
  if (options_.prompt_only) return;
  for (auto& token : tokens) {
    ++completion_tokens_;
    if (options_.memory != nullptr) ids_.push_back(token.id);
    append(parser_.push(token.id), step);
    if (parser_.in_reasoning()) ++reasoning_tokens_;
    step.tokens.push_back(std::move(token));
    if (parser_.done()) {
      generation_->stop();
      end(text::StopCause::stop, step);
      return;
    }
  }
}

void Answer::append(std::vector<text::Delta> deltas, Step& step) {
  for (auto& delta : deltas) {
    if (delta.kind == text::Delta::Kind::tool_call) {
      call_ids_.push_back(new_call_id(delta.call, options_.starts.thinking && message().reasoning.empty()));
    }
    append_delta(step.deltas, std::move(delta));
  }
}

void Answer::end(text::StopCause cause, Step& step) {
  ended_ = true;
  append(parser_.finish(cause), step);
  if (cause == text::StopCause::stop) report_unparsed();
  const auto& stop = parser_.message().stop_sequence;
  if (options_.include_stop && stop) {
    append_delta(step.deltas, text::Delta{.kind = text::Delta::Kind::content, .call = 0, .text = *stop});
  }
  if (cause == text::StopCause::stop && !error_) remember();
}

// What was asked and answered is never logged, so only that it happened.
void Answer::report_unparsed() const {
  const auto& whole = message();
  if (whole.unparsed_calls.empty()) return;
  spdlog::warn("malformed tool calls in the answer: {}; {}", whole.unparsed_calls.size(),
               whole.tool_calls.empty() ? "the answer shows their text" : "the answer has the others only");
}

void Answer::remember() {
  const auto& whole = message();
  // What was cut off or not understood never comes back as a call, so it must not come back with one.
  if (options_.memory == nullptr || whole.tool_calls.empty() || !whole.unparsed_calls.empty()) return;
  AnswerMemory::Turn turn;
  turn.sampled = std::move(options_.starts);
  if (ids_.back() == options_.end_of_sentence) ids_.pop_back();
  turn.sampled.ids = std::move(ids_);
  turn.reasoning = whole.reasoning;
  turn.content = whole.content;
  for (size_t call = 0; call < whole.tool_calls.size(); ++call) {
    turn.calls.push_back({call_ids_[call], whole.tool_calls[call].name, whole.tool_calls[call].arguments});
  }
  options_.memory->remember(std::move(turn));
}

std::string Answer::content() const {
  const auto& whole = message();
  return options_.include_stop && whole.stop_sequence ? whole.content + *whole.stop_sequence : whole.content;
}

}  // namespace gannet::server
