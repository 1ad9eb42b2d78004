#pragma once

#include <chrono>
#include <exception>

namespace gannet::text::grammar {

// Thrown out of xgrammar's compiler when the thread's budget is used up.
struct BudgetExceeded : std::exception {
  const char* what() const noexcept override { return "the grammar takes too long to compile"; }
};

// While it lives, compiling on this thread may use that much of the processor's time.
class CompileBudget {
 public:
  explicit CompileBudget(std::chrono::milliseconds limit);
  ~CompileBudget();
  CompileBudget(const CompileBudget&) = delete;
  CompileBudget& operator=(const CompileBudget&) = delete;
};

}  // namespace gannet::text::grammar

// What the patched compiler calls before each state of its automata (cmake/xgrammar).
void gannet_grammar_step();
