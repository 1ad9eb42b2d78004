#pragma once

#include <atomic>
#include <string>

#include "server/errors.h"
#include "server/http.h"
#include "server/served_model.h"

namespace gannet::server {

// The routes of the HTTP API: finds the protocol for a request, checks the API key, and knows whether the model can be
// asked. All members may be called from any thread.
class ApiServer {
 public:
  // `api_key` empty: everybody may ask.
  explicit ApiServer(std::string api_key) : api_key_(std::move(api_key)) {}

  // From now on requests are answered; before, they are refused with 503. `model` must outlive the object.
  void start_serving(const ServedModel& model) { model_ = &model; }
  // From now on new requests are refused with 503.
  void stop_serving() { stopping_ = true; }

  Reply handle(const HttpRequest& request) const;
  // For errors that HTTP found: as OpenAI's clients expect them.
  static HttpResponse error_page(int status, const std::string& message);

 private:
  bool authorised(const HttpRequest& request) const;
  Reply handle_model_route(const HttpRequest& request) const;

  std::string api_key_;
  std::atomic<const ServedModel*> model_ = nullptr;
  std::atomic<bool> stopping_ = false;
};

}  // namespace gannet::server
