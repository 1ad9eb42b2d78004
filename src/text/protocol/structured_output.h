#pragma once

#include "base/error.h"
#include "text/chat_request.h"
#include "text/protocol/fields.h"

namespace gannet::text {

// Reads vLLM's ways to say which form the content must have: structured_outputs {json, json_object, regex, choice,
// grammar}, and the older guided_json, guided_regex, guided_choice, guided_grammar. A choice becomes a grammar. Two of
// them at once are an error.
Status read_structured_output(const Fields& body, ResponseFormat& format);

// A JSON schema in a format's field.
Status check_schema(const Json& schema, std::string_view path);

}  // namespace gannet::text
