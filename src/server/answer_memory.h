#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "text/chat_request.h"

namespace gannet::server {

// What the model generated for its latest answers with tool calls, found again by the ids of these calls. A client
// sends such an answer back as JSON, and JSON rendered anew seldom has the very tokens that were sampled; with them the
// prompt goes on exactly where the prefix cache ends. Safe to use from several threads.
class AnswerMemory {
 public:
  // The oldest turns are forgotten when all together take more than that many bytes.
  explicit AnswerMemory(size_t byte_limit = size_t{64} << 20) : byte_limit_(byte_limit) {}

  struct Turn {
    text::SampledMessage sampled;
    // What the client was told of it.
    std::string reasoning;
    std::string content;
    std::vector<text::ToolCall> calls;
  };
  void remember(Turn turn);

  // What became of the assistant messages with calls in one or more requests.
  struct Replays {
    int64_t spliced = 0;     // went into the prompt as they were generated
    int64_t mismatched = 0;  // known, but they came back changed, or under other rules than they were generated
    int64_t unknown = 0;     // not of this server, or forgotten
  };
  // Sets `sampled` of the messages of `chat` that say the same as what was generated: equal calls (arguments compared
  // as JSON values), equal content but for white space around it, and equal reasoning, or none.
  Replays splice(text::ChatRequest& chat);

  struct Counts {
    Replays replays;    // counted so far
    int64_t turns = 0;  // kept now
    int64_t bytes = 0;  // that they take
  };
  void count(const Replays& replays);
  Counts counts() const;

 private:
  using Kept = std::list<std::shared_ptr<const Turn>>;  // latest use first

  std::shared_ptr<const Turn> find(const std::string& call_id);
  void forget_oldest();

  const size_t byte_limit_;
  mutable std::mutex mutex_;
  Kept turns_;
  std::unordered_map<std::string, Kept::iterator> by_call_;
  size_t bytes_ = 0;
  Replays replays_;
};

// Whether two texts are the same JSON value: the order of members and the spelling of numbers do not matter. Texts that
// are no JSON must be equal.
bool same_json(const std::string& left, const std::string& right);

}  // namespace gannet::server
