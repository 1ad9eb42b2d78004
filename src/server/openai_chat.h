#pragma once

#include "server/http.h"
#include "server/served_model.h"

namespace gannet::server {

// POST /v1/chat/completions.
Reply openai_chat(const ServedModel& model, const HttpRequest& request);

}  // namespace gannet::server
