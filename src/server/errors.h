#pragma once

#include <string>
#include <string_view>

#include "base/error.h"
#include "server/http.h"

namespace gannet::server {

// Why a request was refused or failed, in the terms all protocols share; each protocol has its own body for it.
struct ApiError {
  int status = 400;
  std::string message;  // one sentence: the field, the value found, what would be right
  std::string code;     // OpenAI's code, e.g. "context_length_exceeded"; empty: null
  std::string param;    // the field of the request; empty: null
};

template <class T>
using ApiResult = tl::expected<T, ApiError>;

// As much of a client's text as a message repeats.
std::string_view shown(std::string_view text);

ApiError bad_request(std::string message, std::string param = "");
// `at_least`: the prompt may have more tokens than `prompt_tokens`.
ApiError context_too_long(int64_t limit, int64_t prompt_tokens, bool at_least = false);
// invalid_input becomes 400 with the field that the message begins with, all else 500.
ApiError api_error(const Error& error);

// Body of OpenAI's errors: {"error": {"message", "type", "param", "code"}}.
std::string openai_error_body(const ApiError& error);
// The same as a response; 429 and 503 tell the client when to try again.
HttpResponse openai_error(const ApiError& error);

}  // namespace gannet::server
