#pragma once

#include "server/http.h"
#include "server/served_model.h"

// How texts and conversations become tokens here, for clients without a tokenizer of their own.
namespace gannet::server {

// POST /tokenize: a `prompt` as /v1/completions reads it, or `messages` as /v1/chat/completions does.
Reply tokenize(const ServedModel& model, const HttpRequest& request);
// POST /detokenize.
Reply detokenize(const ServedModel& model, const HttpRequest& request);
// GET /tokenizer_info.
Reply tokenizer_info(const ServedModel& model, const HttpRequest& request);

}  // namespace gannet::server
