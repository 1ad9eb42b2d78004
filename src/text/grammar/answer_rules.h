#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/error.h"
#include "text/chat_request.h"

namespace gannet::text::grammar {

// The grammar, in xgrammar's EBNF, of what an answer says after its reasoning. Empty: anything. `dsml` is the id of the
// token in the markup of calls. Errors (invalid_input) name the field, the place in it and the keyword.
Result<std::string> answer_ebnf(const ChatRequest& request, std::optional<int32_t> dsml);
// The same for a text of the given form.
Result<std::string> format_ebnf(const ResponseFormat& format, const std::string& field);

}  // namespace gannet::text::grammar
