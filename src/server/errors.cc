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
  if (error.status == 429 || error.status == 503) response.headers.emplace_back("Retry-After", "1");
  if (error.status == 401) response.headers.emplace_back("WWW-Authenticate", "Bearer");
  return response;
}

}  // namespace gannet::server
