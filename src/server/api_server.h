#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/errors.h"
#include "server/http.h"
#include "server/metrics.h"
#include "server/rate_limit.h"
#include "server/served_model.h"

namespace gannet::server {

struct ApiOptions {
  std::vector<std::string> api_keys;  // any of them lets a request in; none: everybody may ask
  int64_t requests_per_minute = 0;    // of one key or, without keys, of one address; 0: any number
};

// The routes of the HTTP API: finds the protocol for a request, checks the API key, and knows whether the model can be
// asked. All members may be called from any thread.
class ApiServer {
 public:
  explicit ApiServer(ApiOptions options)
      : options_(std::move(options)),
        key_limit_(options_.requests_per_minute),
        address_limit_(options_.requests_per_minute) {}

  // From now on requests are answered; before, they are refused with 503. `model` must outlive the object.
  void start_serving(const ServedModel& model) { model_ = &model; }
  // From now on new requests are refused with 503.
  void stop_serving() { stopping_ = true; }

  // What a request is turned away with, as far as its head tells: no key, too many requests, no such route.
  std::optional<HttpResponse> refuse(const HttpRequest& head) const;
  // Refuses by itself what no gate has let in.
  Reply handle(const HttpRequest& request) const;
  // Counts and logs a request that is over.
  void observe(const RequestRecord& record);
  // For errors that HTTP found, as the clients of that path expect them.
  static HttpResponse error_page(int status, const std::string& message, std::string_view path);

 private:
  struct OwnRoute;
  static const OwnRoute* find_own_route(std::string_view path);

  // Routes about the server itself, open to everybody.
  Reply root(const HttpRequest& request) const;
  Reply web_file(const HttpRequest& request) const;
  Reply alive(const HttpRequest& request) const;
  Reply health(const HttpRequest& request) const;
  Reply ready(const HttpRequest& request) const;
  Reply version(const HttpRequest& request) const;
  Reply metrics(const HttpRequest& request) const;
  Reply stats(const HttpRequest& request) const;

  // The key that a request shows, if it is one of ours.
  const std::string* key_of(const HttpRequest& request) const;
  std::optional<HttpResponse> refuse_client(const HttpRequest& request) const;
  std::optional<HttpResponse> refuse_model_route(const HttpRequest& head) const;
  std::optional<HttpResponse> not_serving(const HttpRequest& request) const;

  ApiOptions options_;
  // Apart, so that strangers from many addresses cannot use up what is left for those with a key.
  mutable RateLimit key_limit_;
  mutable RateLimit address_limit_;
  HttpMetrics http_metrics_;
  std::atomic<const ServedModel*> model_ = nullptr;
  std::atomic<bool> stopping_ = false;
};

}  // namespace gannet::server
