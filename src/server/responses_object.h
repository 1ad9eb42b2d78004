#pragma once

#include <string>

#include "server/openai_json.h"
#include "server/served_model.h"
#include "text/chat_request.h"
#include "text/json.h"

namespace gannet::server {

// The response object of a request as it is before anything was generated: what the client asked for, with the values
// that hold where it said nothing. `body` is the request's, an object.
OrderedJson response_object(const ServedModel& model, const text::Json& body, const text::ChatRequest& chat,
                            const std::string& id, bool is_stored);

}  // namespace gannet::server
