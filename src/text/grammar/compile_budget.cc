#include "text/grammar/compile_budget.h"

#include <ctime>

namespace gannet::text::grammar {
namespace {

using Nanoseconds = std::chrono::nanoseconds;

// Of this thread's processor time; never, unless a budget is set.
thread_local Nanoseconds deadline = Nanoseconds::max();

// Not wall time: a busy machine must not refuse what an idle one accepts.
Nanoseconds thread_time() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return std::chrono::seconds(now.tv_sec) + Nanoseconds(now.tv_nsec);
}

}  // namespace

CompileBudget::CompileBudget(std::chrono::milliseconds limit) {
  deadline = thread_time() + limit;
}

CompileBudget::~CompileBudget() {
  deadline = Nanoseconds::max();
}

}  // namespace gannet::text::grammar

void gannet_grammar_step() {
  using namespace gannet::text::grammar;
  if (deadline != Nanoseconds::max() && thread_time() > deadline) throw BudgetExceeded();
}
