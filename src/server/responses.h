#pragma once

#include "server/http.h"
#include "server/served_model.h"

namespace gannet::server {

// POST /v1/responses, OpenAI's newer API.
Reply openai_responses(const ServedModel& model, const HttpRequest& request);

}  // namespace gannet::server
