#include "cli/bench_null_engine.h"

#include <utility>

namespace gannet::cli {

namespace {

constexpr auto kTick = std::chrono::milliseconds(1);  // requests that are due in the same one are served together

}  // namespace

NullEngine::NullEngine(Options options)
    : options_(options), given_(static_cast<size_t>(options.requests * options.tokens)), thread_([this] { work(); }) {
  config_.vocab_size = options.vocab_size;
}

NullEngine::~NullEngine() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
  }
  thread_.join();
}

NullEngine::Clock::time_point NullEngine::given(int64_t number, int64_t index) const {
  return Clock::time_point(Clock::duration(given_[static_cast<size_t>(number * options_.tokens + index)].load()));
}

int64_t NullEngine::unfinished() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int64_t>(running_.size());
}

Result<RequestId> NullEngine::submit(Request request) {
  const auto number = static_cast<int64_t>(request.sampling.seed.value_or(0));
  if (number >= options_.requests || request.sampling.max_tokens > options_.tokens) {
    return invalid_input("seed is {} and max_tokens {}; this engine has room for {} requests of {} tokens", number,
                         request.sampling.max_tokens, options_.requests, options_.tokens);
  }
  auto running = std::make_shared<Running>(Running{std::move(request), 0});
  const auto now = Clock::now();
  const auto pace = std::chrono::duration_cast<Clock::duration>(options_.pace);
  const auto first = options_.lockstep ? Clock::time_point(now.time_since_epoch() / pace * pace + pace) : now + pace;
  const std::lock_guard lock(mutex_);
  const RequestId id = ++last_id_;
  running_.emplace(id, std::move(running));
  arrived_.push_back({first, id});
  changed_.notify_all();
  return id;
}

void NullEngine::cancel(RequestId id) {
  const auto running = take(id);
  if (running && running->request.on_end) running->request.on_end(FinishReason::cancelled);
}

std::shared_ptr<NullEngine::Running> NullEngine::find(RequestId id) const {
  const std::lock_guard lock(mutex_);
  const auto found = running_.find(id);
  return found == running_.end() ? nullptr : found->second;
}

std::shared_ptr<NullEngine::Running> NullEngine::take(RequestId id) {
  const std::lock_guard lock(mutex_);
  const auto found = running_.find(id);
  if (found == running_.end()) return nullptr;
  auto running = std::move(found->second);
  running_.erase(found);
  return running;
}

bool NullEngine::give(const Due& due) {
  const auto running = find(due.id);
  if (!running) return false;
  Request& request = running->request;
  const auto number = static_cast<int64_t>(request.sampling.seed.value_or(0));
  Token token;
  token.id = options_.id;
  const bool last = running->given + 1 == request.sampling.max_tokens;
  if (last) token.finish = FinishReason::length;
  if (running->given == 0 && request.on_start) request.on_start(0);
  given_[static_cast<size_t>(number * options_.tokens + running->given)] = Clock::now().time_since_epoch().count();
  ++running->given;
  request.on_token(token);
  if (!last) return true;
  take(due.id);
  request.on_end(FinishReason::length);
  return false;
}

void NullEngine::work() {
  std::priority_queue<Due, std::vector<Due>, std::greater<>> queue;
  std::vector<Due> arrived;
  while (true) {
    {
      std::unique_lock lock(mutex_);
      if (queue.empty()) changed_.wait(lock, [this] { return stopping_ || !arrived_.empty(); });
      if (stopping_) return;
      arrived.swap(arrived_);
    }
    for (const Due& due : arrived) queue.push(due);
    arrived.clear();
    const auto now = Clock::now();
    while (!queue.empty() && queue.top().time <= now) {
      Due due = queue.top();
      queue.pop();
      if (!give(due)) continue;
      due.time += options_.pace;
      queue.push(due);
    }
    std::this_thread::sleep_until(now + kTick);
  }
}

}  // namespace gannet::cli
