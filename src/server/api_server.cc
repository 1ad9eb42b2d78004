#include "server/api_server.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "base/version.h"
#include "server/access_log.h"
#include "server/anthropic_messages.h"
#include "server/openai_chat.h"
#include "server/openai_completions.h"
#include "server/openai_json.h"
#include "server/responses.h"
#include "server/tokenize.h"
#include "server/web_page.h"

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

Reply reset_prefix_cache(const ServedModel& model, const HttpRequest&) {
  model.engine->reset_prefix_cache();
  OrderedJson json;
  json["success"] = true;
  return json_response(json);
}

// SGLang's name for it.
Reply flush_cache(const ServedModel& model, const HttpRequest&) {
  model.engine->reset_prefix_cache();
  HttpResponse response;
  response.content_type = "text/plain; charset=utf-8";
  response.body = "Cache flushed.\n";
  return response;
}

Reply model_info(const ServedModel& model, const HttpRequest&) {
  OrderedJson json;
  json["model_path"] = model.names.front();
  json["tokenizer_path"] = model.names.front();
  json["is_generation"] = true;
  json["max_model_len"] = model.engine->max_model_len();
  json["vocab_size"] = model.engine->config().vocab_size;
  return json_response(json);
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
    ModelRoute{"POST", "/reset_prefix_cache", reset_prefix_cache},
    ModelRoute{"POST", "/flush_cache", flush_cache},
    ModelRoute{"GET", "/get_model_info", model_info},
};
constexpr ModelRoute kModelRoute = {"GET", kModelPrefix, show_model};  // the name follows

const ModelRoute* find_route(std::string_view path) {
  for (const auto& route : kModelRoutes) {
    if (route.path == path) return &route;
  }
  return path.size() > kModelPrefix.size() && path.starts_with(kModelPrefix) ? &kModelRoute : nullptr;
}

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
  auto response = error_for(request.path, error, request.id);
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

// The media type of a Content-Type header, in lower case.
std::string media_type(std::string_view header) {
  std::string type(header.substr(0, header.find(';')));
  while (!type.empty() && type.back() == ' ') type.pop_back();
  for (char& c : type) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c + 0x20) : c;
  return type;
}

// As the head says.
bool has_body(const HttpRequest& request) {
  const auto length = request.header("content-length");
  return !request.header("transfer-encoding").empty() || length.find_first_not_of('0') != std::string_view::npos;
}

// Bodies are JSON; a body of no declared type is taken for it.
std::optional<ApiError> check_body_type(const HttpRequest& request) {
  const auto encoding = request.header("content-encoding");
  if (!encoding.empty() && encoding != "identity") {
    return bad_request(fmt::format("Content-Encoding is {}; the body must be sent as plain JSON", shown(encoding)),
                       "Content-Encoding");
  }
  const std::string type = media_type(request.header("content-type"));
  if (!has_body(request) || type.empty() || type == "application/json" || type.ends_with("+json")) return {};
  ApiError error;
  error.status = 415;
  error.param = "Content-Type";
  error.message = fmt::format("Content-Type is {}; the body must be application/json", shown(type));
  return error;
}

double share(int64_t part, int64_t whole) {
  return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0;
}

constexpr std::string_view kWebPrefix = "/web/";

}  // namespace

// ---- routes about the server itself

struct ApiServer::OwnRoute {
  std::string_view path;
  Reply (ApiServer::*handle)(const HttpRequest& request) const;
};

const ApiServer::OwnRoute* ApiServer::find_own_route(std::string_view path) {
  static constexpr std::array kRoutes = {
      OwnRoute{"/", &ApiServer::root},
      OwnRoute{"/health", &ApiServer::health},
      OwnRoute{"/live", &ApiServer::alive},
      OwnRoute{"/ping", &ApiServer::health},
      OwnRoute{"/ready", &ApiServer::ready},
      OwnRoute{"/version", &ApiServer::version},
      OwnRoute{"/metrics", &ApiServer::metrics},
      OwnRoute{"/stats", &ApiServer::stats},
      OwnRoute{"/openapi.json", &ApiServer::web_file},
  };
  static constexpr OwnRoute kWebRoute = {kWebPrefix, &ApiServer::web_file};
  for (const auto& route : kRoutes) {
    if (route.path == path) return &route;
  }
  return path.starts_with(kWebPrefix) ? &kWebRoute : nullptr;
}

// A page for browsers, a word for programs.
Reply ApiServer::root(const HttpRequest& request) const {
  if (request.header("accept").find("text/html") == std::string_view::npos) return alive(request);
  return web_file(request);
}

Reply ApiServer::web_file(const HttpRequest& request) const {
  const WebFile* file = find_web_file(request.path);
  return file == nullptr ? error_for(request.path, not_found(request), request.id) : web_response(*file);
}

Reply ApiServer::alive(const HttpRequest&) const {
  OrderedJson json;
  json["status"] = "ok";
  return json_response(json);
}

Reply ApiServer::health(const HttpRequest& request) const {
  const ServedModel* model = model_;
  if (model == nullptr) return alive(request);
  const Status health = model->engine->health();
  return health ? alive(request) : error_page(503, health.error().message, request.path);
}

Reply ApiServer::ready(const HttpRequest& request) const {
  if (stopping_) return error_page(503, "the server is shutting down", request.path);
  const ServedModel* model = model_;
  if (model == nullptr) return error_page(503, "the model is still being loaded", request.path);
  if (const Status health = model->engine->health(); !health) {
    return error_page(503, health.error().message, request.path);
  }
  OrderedJson json;
  json["status"] = "ready";
  return json_response(json);
}

Reply ApiServer::version(const HttpRequest&) const {
  OrderedJson json;
  json["version"] = kVersion;
  return json_response(json);
}

Reply ApiServer::metrics(const HttpRequest&) const {
  MetricsSource source;
  source.http = &http_metrics_;
  EngineStats engine;
  ToolReplayStats tool_replay;
  if (const ServedModel* model = model_; model != nullptr) {
    engine = model->engine->stats();
    const auto replays = model->memory->counts().replays;
    tool_replay = {replays.spliced, replays.mismatched, replays.unknown};
    source.model_name = model->names.front();
    source.engine = &engine;
    source.tool_replay = &tool_replay;
  }
  HttpResponse response;
  response.content_type = kMetricsType;
  response.body = metrics_text(source);
  return response;
}

// What the web page shows.
Reply ApiServer::stats(const HttpRequest&) const {
  const ServedModel* model = model_;
  OrderedJson json;
  json["version"] = kVersion;
  json["needs_key"] = !options_.api_keys.empty();
  json["ready"] = model != nullptr && !stopping_;
  if (model == nullptr) return json_response(json);
  const EngineStats stats = model->engine->stats();
  json["models"] = model->names;
  json["max_model_len"] = model->engine->max_model_len();
  json["running"] = stats.running;
  json["waiting"] = stats.waiting;
  json["kv_cache_usage"] = share(stats.blocks_held, stats.blocks);
  json["kv_cache_kept"] = share(stats.blocks_cached, stats.blocks);
  json["prompt_tokens"] = stats.prompt_tokens;
  json["prompt_tokens_cached"] = stats.prompt_tokens_cached;
  json["generation_tokens"] = stats.generation_tokens;
  return json_response(json);
}

// ---- all routes

HttpResponse ApiServer::error_page(int status, const std::string& message, std::string_view path) {
  ApiError error;
  error.status = status;
  error.message = message;
  return error_for(path, error);
}

void ApiServer::observe(const RequestRecord& record) {
  std::string_view handler = "other";
  if (const auto* own = find_own_route(record.path)) handler = own->path;
  if (const auto* route = find_route(record.path)) handler = route->path;
  http_metrics_.observe(handler, record);
  log_request(record);
}

Reply ApiServer::handle(const HttpRequest& request) const {
  if (!request.admitted) {
    if (auto refused = refuse(request)) return *std::move(refused);
  }
  if (const OwnRoute* route = find_own_route(request.path)) return (this->*route->handle)(request);
  if (auto refused = not_serving(request)) return *std::move(refused);
  return find_route(request.path)->handle(*model_, request);
}

std::optional<HttpResponse> ApiServer::refuse(const HttpRequest& head) const {
  if (find_own_route(head.path) == nullptr) return refuse_model_route(head);
  if (!is_get(head)) return method_not_allowed(head, "GET");
  if (!has_body(head)) return {};
  return error_for(head.path, bad_request(fmt::format("{} takes no body", shown(head.path))), head.id);
}

const std::string* ApiServer::key_of(const HttpRequest& request) const {
  constexpr std::string_view kBearer = "bearer ";
  const auto header = request.header("authorization");
  const bool bearer =
      header.size() > kBearer.size() && std::equal(kBearer.begin(), kBearer.end(), header.begin(),
                                                   [](char wanted, char found) { return wanted == (found | 0x20); });
  const std::string_view shown_key = bearer ? header.substr(kBearer.size()) : request.header("x-api-key");
  const std::string* found = nullptr;
  for (const auto& key : options_.api_keys) {
    if (same_secret(shown_key, key)) found = &key;
  }
  return found;
}

// The answer to a client who may not ask, or not yet.
std::optional<HttpResponse> ApiServer::refuse_client(const HttpRequest& request) const {
  const std::string* key = key_of(request);
  const auto wait = key == nullptr ? address_limit_.admit(request.remote) : key_limit_.admit(*key);
  if (wait.count() > 0) {
    ApiError error;
    error.status = 429;
    error.code = "rate_limit_exceeded";
    error.message = fmt::format("more than {} requests a minute; please try again in {}s", options_.requests_per_minute,
                                wait.count());
    HttpResponse response = error_for(request.path, error, request.id);
    std::erase_if(response.headers, [](const auto& header) { return header.first == "Retry-After"; });
    response.headers.emplace_back("Retry-After", std::to_string(wait.count()));
    return response;
  }
  if (key != nullptr || options_.api_keys.empty()) return {};
  ApiError error;
  error.status = 401;
  error.code = "invalid_api_key";
  error.message = "The API key is missing or wrong; send it as 'Authorization: Bearer KEY'.";
  return error_for(request.path, error, request.id);
}

std::optional<HttpResponse> ApiServer::refuse_model_route(const HttpRequest& head) const {
  if (auto refused = refuse_client(head)) return refused;
  const ModelRoute* route = find_route(head.path);
  if (route == nullptr) return error_for(head.path, not_found(head), head.id);
  const bool allowed = route->method == "GET" ? is_get(head) : head.method == route->method;
  if (!allowed) return method_not_allowed(head, route->method);
  if (auto refused = not_serving(head)) return refused;
  if (const auto wrong = check_body_type(head)) return error_for(head.path, *wrong, head.id);
  return {};
}

std::optional<HttpResponse> ApiServer::not_serving(const HttpRequest& request) const {
  if (stopping_) {
    return error_page(503, "the server is shutting down; ask another one or try again later", request.path);
  }
  if (model_ == nullptr) return error_page(503, "the model is still being loaded; try again later", request.path);
  return {};
}

}  // namespace gannet::server
