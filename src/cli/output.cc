#include "cli/output.h"

#include <cerrno>
#include <cstdio>
#include <cstring>

namespace gannet::cli {

Status write_output(std::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0) return {};
  return failed("standard output: cannot be written: {}", std::strerror(errno));
}

}  // namespace gannet::cli
