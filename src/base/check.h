#pragma once

// Apart from base/error.h, whose fmt the CUDA compiler does not take.
namespace gannet {

// Invariant of our own code, never of input: prints where and why, then aborts.
[[noreturn]] void fail_check(const char* condition, const char* file, int line);

}  // namespace gannet

#define GANNET_CHECK(condition) \
  (static_cast<bool>(condition) ? void(0) : ::gannet::fail_check(#condition, __FILE__, __LINE__))
