#pragma once

#include "server/http.h"
#include "server/served_model.h"

namespace gannet::server {

// POST /v1/messages, Anthropic's API.
Reply anthropic_messages(const ServedModel& model, const HttpRequest& request);

// POST /v1/messages/count_tokens: how many tokens the prompt of such a request has.
Reply anthropic_count_tokens(const ServedModel& model, const HttpRequest& request);

}  // namespace gannet::server
