#pragma once

#include "server/http.h"
#include "server/served_model.h"

namespace gannet::server {

// POST /v1/completions. Text prompts are taken as they are: spellings of control tokens become these tokens, and
// nothing is put in front unless `add_special_tokens` is true.
Reply openai_completions(const ServedModel& model, const HttpRequest& request);

}  // namespace gannet::server
