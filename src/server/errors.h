#pragma once

#include <cstdint>
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
  // Of a prompt too long for the context: its tokens and the context's.
  int64_t prompt_tokens = 0;
  int64_t context_tokens = 0;
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

// Body of Anthropic's errors: {"type": "error", "error": {"type", "message"}, "request_id"}; without a request id that
// member is left out. Overload is their type overloaded_error, and a prompt that is too long has their message.
std::string anthropic_error_body(const ApiError& error, const std::string& request_id = "");
// The same as a response; overload has their status, 529.
HttpResponse anthropic_error(const ApiError& error, const std::string& request_id = "");
// As the API behind a path expects it.
HttpResponse error_for(std::string_view path, const ApiError& error, const std::string& request_id = "");

}  // namespace gannet::server
