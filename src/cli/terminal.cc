#include "cli/terminal.h"

#include <signal.h>
#include <unistd.h>

namespace gannet::cli {
namespace {

volatile sig_atomic_t interrupt_seen = 0;
struct sigaction previous_action = {};

void note_interrupt(int) {
  interrupt_seen = 1;
}

}  // namespace

bool is_interactive() {
  return ::isatty(STDIN_FILENO) == 1 && ::isatty(STDOUT_FILENO) == 1;
}

std::string printable(std::string_view text) {
  std::string safe;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if (byte < 0x20 && byte != '\n' && byte != '\t') continue;
    if (byte == 0x7F) continue;
    // U+0080 to U+009F: the same controls in two bytes.
    if (byte == 0xC2 && i + 1 < text.size() && static_cast<unsigned char>(text[i + 1]) < 0xA0) {
      ++i;
      continue;
    }
    safe += text[i];
  }
  return safe;
}

InterruptGuard::InterruptGuard() {
  interrupt_seen = 0;
  struct sigaction action = {};
  action.sa_handler = note_interrupt;
  ::sigemptyset(&action.sa_mask);
  ::sigaction(SIGINT, &action, &previous_action);
}

InterruptGuard::~InterruptGuard() {
  ::sigaction(SIGINT, &previous_action, nullptr);
}

bool InterruptGuard::interrupted() {
  return interrupt_seen != 0;
}

}  // namespace gannet::cli
