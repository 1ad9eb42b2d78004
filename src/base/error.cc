#include "base/error.h"

#include <cstdio>
#include <cstdlib>

namespace gannet {

void fail_check(const char* condition, const char* file, int line) {
  std::fprintf(stderr, "gannet: internal check failed: %s (%s:%d)\n", condition, file, line);
  std::abort();
}

}  // namespace gannet
