#pragma once

#include <string>
#include <string_view>

namespace gannet::cli {

// Whether standard input and output are both a terminal.
bool is_interactive();

// Text from a model or a client made harmless for a terminal: control characters other than tab and newline are left
// out, so that no escape sequence gets through.
std::string printable(std::string_view text);

// While it lives, Ctrl-C sets a flag instead of ending the program.
class InterruptGuard {
 public:
  InterruptGuard();
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;
  // Whether Ctrl-C was pressed since the guard was made.
  static bool interrupted();
};

}  // namespace gannet::cli
