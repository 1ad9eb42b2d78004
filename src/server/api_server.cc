#include "server/api_server.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "base/version.h"
#include "server/anthropic_messages.h"
#include "server/openai_chat.h"
#include "server/openai_completions.h"
#include "server/openai_json.h"
#include "server/responses.h"
#include "server/tokenize.h"

namespace gannet::server {
namespace {

HttpResponse json_response(const OrderedJson& json) {
  HttpResponse response;
  response.body = to_text(json);
  return response;
}

OrderedJson model_json(const ServedModel& model, const std::string& name) {
  OrderedJson entry;
  entry["id"] = name;
  entry["object"] = "model";
  entry["created"] = model.created;
  entry["owned_by"] = "gannet";
  entry["max_model_len"] = model.engine->max_model_len();
  return entry;
}

Reply list_models(const ServedModel& model, const HttpRequest&) {
  OrderedJson list;
  list["object"] = "list";
  list["data"] = OrderedJson::array();
  for (const auto& name : model.names) list["data"].push_back(model_json(model, name));
  return json_response(list);
}

// "%2F" and the like become the bytes they stand for; anything else stays.
std::string percent_decoded(std::string_view text) {
  std::string decoded;
  for (size_t i = 0; i < text.size(); ++i) {
    unsigned char byte = 0;
    const bool escape = text[i] == '%' && i + 2 < text.size() &&
                        std::from_chars(text.data() + i + 1, text.data() + i + 3, byte, 16).ptr == text.data() + i + 3;
    decoded += escape ? static_cast<char>(byte) : text[i];
    if (escape) i += 2;
  }
  return decoded;
}

constexpr std::string_view kModelPrefix = "/v1/models/";

Reply show_model(const ServedModel& model, const HttpRequest& request) {
  const std::string name = percent_decoded(std::string_view(request.path).substr(kModelPrefix.size()));
  if (const auto known = check_model(model, name); !known) return openai_error(known.error());
  return json_response(model_json(model, name));
}

// Routes that ask the model; they need the API key.
struct ModelRoute {
  std::string_view method;
  std::string_view path;
  Reply (*handle)(const ServedModel& model, const HttpRequest& request);
};
constexpr std::array kModelRoutes = {
    ModelRoute{"POST", "/v1/chat/completions", openai_chat},
    ModelRoute{"POST", "/v1/completions", openai_completions},
    ModelRoute{"POST", "/v1/responses", openai_responses},
    ModelRoute{"POST", "/v1/messages", anthropic_messages},
    ModelRoute{"POST", "/v1/messages/count_tokens", anthropic_count_tokens},
    ModelRoute{"POST", "/tokenize", tokenize},
    ModelRoute{"POST", "/detokenize", detokenize},
    ModelRoute{"GET", "/tokenizer_info", tokenizer_info},
    ModelRoute{"GET", "/v1/models", list_models},
};
constexpr ModelRoute kModelRoute = {"GET", kModelPrefix, show_model};  // the name follows

const ModelRoute* find_route(std::string_view path) {
  for (const auto& route : kModelRoutes) {
    if (route.path == path) return &route;
  }
  return path.size() > kModelPrefix.size() && path.starts_with(kModelPrefix) ? &kModelRoute : nullptr;
}

// Routes about the server itself, open to everybody.
constexpr std::array<std::string_view, 6> kOwnRoutes = {"/", "/health", "/live", "/ready", "/ping", "/version"};

ApiError not_found(const HttpRequest& request) {
  ApiError error;
  error.status = 404;
  error.code = "route_not_found";
  error.message = fmt::format(
      "There is no {} on this server; it has /v1/chat/completions, /v1/completions, /v1/models "
      "and /health.",
      shown(request.path));
  return error;
}

HttpResponse method_not_allowed(const HttpRequest& request, std::string_view allowed) {
  ApiError error;
  error.status = 405;
  error.message = fmt::format("{} takes {}, not {}.", shown(request.path), allowed, shown(request.method));
  auto response = openai_error(error);
  response.headers.emplace_back("Allow", allowed);
  return response;
}

bool is_get(const HttpRequest& request) {
  return request.method == "GET" || request.method == "HEAD";
}

// Compares in a time that does not tell where the difference is.
bool same_secret(std::string_view left, std::string_view right) {
  unsigned difference = left.size() != right.size();
  for (size_t i = 0; i < std::min(left.size(), right.size()); ++i) {
    difference |= static_cast<unsigned char>(left[i]) ^ static_cast<unsigned char>(right[i]);
  }
  return difference == 0;
}

}  // namespace

HttpResponse ApiServer::error_page(int status, const std::string& message) {
  ApiError error;
  error.status = status;
  error.message = message;
  return openai_error(error);
}

bool ApiServer::authorised(const HttpRequest& request) const {
  if (api_key_.empty()) return true;
  constexpr std::string_view kBearer = "bearer ";
  std::string_view key = request.header("x-api-key");
  if (key.empty()) {
    const auto header = request.header("authorization");
    const bool bearer =
        header.size() > kBearer.size() && std::equal(kBearer.begin(), kBearer.end(), header.begin(),
                                                     [](char wanted, char found) { return wanted == (found | 0x20); });
    if (bearer) key = header.substr(kBearer.size());
  }
  return same_secret(key, api_key_);
}

Reply ApiServer::handle(const HttpRequest& request) const {
  if (std::find(kOwnRoutes.begin(), kOwnRoutes.end(), request.path) == kOwnRoutes.end()) {
    return handle_model_route(request);
  }
  if (!is_get(request)) return method_not_allowed(request, "GET");
  OrderedJson json;
  if (request.path == "/version") {
    json["version"] = kVersion;
  } else if (request.path == "/ready") {
    if (stopping_) return error_page(503, "the server is shutting down");
    if (model_ == nullptr) return error_page(503, "the model is still being loaded");
    json["status"] = "ready";
  } else {
    json["status"] = "ok";
  }
  return json_response(json);
}

Reply ApiServer::handle_model_route(const HttpRequest& request) const {
  if (!authorised(request)) {
    ApiError error;
    error.status = 401;
    error.code = "invalid_api_key";
    error.message = "The API key is missing or wrong; send it as 'Authorization: Bearer KEY'.";
    return openai_error(error);
  }
  const ModelRoute* route = find_route(request.path);
  if (route == nullptr) return openai_error(not_found(request));
  const bool allowed = route->method == "GET" ? is_get(request) : request.method == route->method;
  if (!allowed) return method_not_allowed(request, route->method);
  if (stopping_) return error_page(503, "the server is shutting down; ask another one or try again later");
  const ServedModel* model = model_;
  if (model == nullptr) return error_page(503, "the model is still being loaded; try again later");
  const auto encoding = request.header("content-encoding");
  if (!encoding.empty() && encoding != "identity") {
    return openai_error(
        bad_request(fmt::format("Content-Encoding is {}; the body must be sent as plain JSON", shown(encoding)),
                    "Content-Encoding"));
  }
  return route->handle(*model, request);
}

}  // namespace gannet::server
