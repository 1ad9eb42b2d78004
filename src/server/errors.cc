#include "server/errors.h"

#include <cctype>
#include <nlohmann/json.hpp>
#include <utility>

namespace gannet::server {
namespace {

using Json = nlohmann::ordered_json;

std::string_view openai_type(int status) {
  if (status == 401) return "authentication_error";
  if (status == 403) return "permission_error";
  if (status == 404) return "not_found_error";
  if (status == 429) return "rate_limit_error";
  if (status == 503) return "service_unavailable_error";
  return status >= 500 ? "server_error" : "invalid_request_error";
}

bool is_overload(const ApiError& error) {
  return error.status == 429 && error.code == "overloaded";
}

std::string_view anthropic_type(const ApiError& error) {
  if (is_overload(error) || error.status == 503) return "overloaded_error";
  if (error.status == 401) return "authentication_error";
  if (error.status == 403) return "permission_error";
  if (error.status == 404) return "not_found_error";
  if (error.status == 413) return "request_too_large";
  if (error.status == 429) return "rate_limit_error";
  if (error.status == 504) return "timeout_error";
  return error.status >= 500 ? "api_error" : "invalid_request_error";
}

void add_retry_headers(const ApiError& error, HttpResponse& response) {
  if (error.status == 429 || error.status == 503) response.headers.emplace_back("Retry-After", "1");
  if (error.status == 401) response.headers.emplace_back("WWW-Authenticate", "Bearer");
}

Json string_or_null(const std::string& text) {
  return text.empty() ? Json(nullptr) : Json(text);
}

// "messages[0].content: must be ..." begins with the field, as all messages about one field do.
std::string leading_field(std::string_view message) {
  size_t length = 0;
  while (length < message.size() && (std::isalnum(static_cast<unsigned char>(message[length])) != 0 ||
                                     std::string_view("_.[]").find(message[length]) != std::string_view::npos)) {
    ++length;
  }
  const std::string_view field = message.substr(0, length);
  const std::string_view rest = message.substr(length);
  const bool names_a_field = rest.starts_with(": ") || rest.starts_with(" is ") || rest.starts_with(" must ");
  const bool lower = !field.empty() && std::islower(static_cast<unsigned char>(field.front())) != 0;
  return names_a_field && lower ? std::string(field) : std::string();
}

}  // namespace

std::string_view shown(std::string_view text) {
  constexpr size_t kLongest = 100;
  if (text.size() <= kLongest) return text;
  size_t end = kLongest;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;  // characters stay whole
  return text.substr(0, end);
}

ApiError bad_request(std::string message, std::string param) {
  return ApiError{.status = 400, .message = std::move(message), .code = "", .param = std::move(param)};
}

ApiError context_too_long(int64_t limit, int64_t prompt_tokens, bool at_least) {
  ApiError error = bad_request(fmt::format(
      "This model's maximum context length is {} tokens. However, your prompt has {}{} tokens, which leaves "
      "no room for an answer. Please shorten the prompt.",
      limit, at_least ? "at least " : "", prompt_tokens));
  error.code = "context_length_exceeded";
  error.prompt_tokens = prompt_tokens;
  error.context_tokens = limit;
  return error;
}

ApiError api_error(const Error& error) {
  if (error.kind == ErrorKind::invalid_input) return bad_request(error.message, leading_field(error.message));
  if (error.kind == ErrorKind::overloaded) {
    return ApiError{.status = 429, .message = error.message, .code = "overloaded", .param = ""};
  }
  const int status = error.kind == ErrorKind::timed_out ? 504 : 500;
  return ApiError{.status = status, .message = error.message, .code = "", .param = ""};
}

std::string openai_error_body(const ApiError& error) {
  Json body;
  body["error"]["message"] = error.message;
  body["error"]["type"] = openai_type(error.status);
  body["error"]["param"] = string_or_null(error.param);
  body["error"]["code"] = string_or_null(error.code);
  return body.dump(-1, ' ', false, Json::error_handler_t::replace);
}

HttpResponse openai_error(const ApiError& error) {
  HttpResponse response;
  response.status = error.status;
  response.body = openai_error_body(error);
  add_retry_headers(error, response);
  return response;
}

std::string anthropic_error_body(const ApiError& error, const std::string& request_id) {
  Json body;
  body["type"] = "error";
  body["error"]["type"] = anthropic_type(error);
  body["error"]["message"] = error.message;
  // Claude Code makes its conversation shorter when it reads this.
  if (error.context_tokens > 0) {
    body["error"]["message"] =
        fmt::format("prompt is too long: {} tokens > {} maximum", error.prompt_tokens, error.context_tokens);
  }
  if (!request_id.empty()) body["request_id"] = request_id;
  return body.dump(-1, ' ', false, Json::error_handler_t::replace);
}

HttpResponse anthropic_error(const ApiError& error, const std::string& request_id) {
  constexpr int kOverloaded = 529;
  HttpResponse response;
  response.status = is_overload(error) ? kOverloaded : error.status;
  response.body = anthropic_error_body(error, request_id);
  add_retry_headers(error, response);
  return response;
}

HttpResponse error_for(std::string_view path, const ApiError& error, const std::string& request_id) {
  return path.starts_with("/v1/messages") ? anthropic_error(error, request_id) : openai_error(error);
}

}  // namespace gannet::server
