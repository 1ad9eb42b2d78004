#pragma once

#include <fmt/format.h>

#include <string>
#include <tl/expected.hpp>
#include <utility>

#include "base/check.h"

namespace gannet {

// What went wrong, seen from the person who can mend it. The command line turns it into an exit status, the server
// into an HTTP status.
enum class ErrorKind {
  invalid_input,  // usage, a file's content or a request: exit 2, HTTP 400
  overloaded,     // too much at once; the same request may succeed later: exit 1, HTTP 429
  timed_out,      // a deadline that the caller set has passed: exit 1, HTTP 504
  failed,         // anything else (disk full, port in use, out of memory): exit 1, HTTP 500
};

// `message` is one line that names the option, field or file, the value found, and what would be right.
struct Error {
  ErrorKind kind = ErrorKind::failed;
  std::string message;
};

template <class T>
using Result = tl::expected<T, Error>;
using Status = Result<void>;

template <class... Args>
tl::unexpected<Error> invalid_input(fmt::format_string<Args...> format, Args&&... args) {
  return tl::unexpected(Error{ErrorKind::invalid_input, fmt::format(format, std::forward<Args>(args)...)});
}

template <class... Args>
tl::unexpected<Error> failed(fmt::format_string<Args...> format, Args&&... args) {
  return tl::unexpected(Error{ErrorKind::failed, fmt::format(format, std::forward<Args>(args)...)});
}

}  // namespace gannet

#define GANNET_CONCAT_INNER(a, b) a##b
#define GANNET_CONCAT(a, b) GANNET_CONCAT_INNER(a, b)

// `GANNET_TRY(auto x, f())`: x = *f(), or returns f()'s error from the enclosing function.
#define GANNET_TRY(declaration, expression) GANNET_TRY_INNER(declaration, expression, GANNET_CONCAT(result_, __LINE__))
#define GANNET_TRY_INNER(declaration, expression, name)      \
  auto name = (expression);                                  \
  if (!name) return tl::unexpected(std::move(name).error()); \
  declaration = *std::move(name)

// `GANNET_TRY_STATUS(f())`: returns f()'s error from the enclosing function, if any.
#define GANNET_TRY_STATUS(expression)                                                             \
  do {                                                                                            \
    if (auto status_ = (expression); !status_) return tl::unexpected(std::move(status_).error()); \
  } while (false)
