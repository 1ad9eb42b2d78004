#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/error.h"
#include "text/chat_request.h"

namespace gannet::text::grammar {

// What an answer says after its reasoning.
struct AnswerRules {
  std::string ebnf;   // for xgrammar; empty: anything
  std::string field;  // of the request that wants it so
  // Any text may come first, and the rules hold from the markup of a call on: a call may come, and is held to its
  // schema.
  bool from_first_call = false;
};

// `dsml` is the id of the token in the markup of calls. Errors (invalid_input) name the field, the place in it and the
// keyword.
Result<AnswerRules> answer_rules(const ChatRequest& request, std::optional<int32_t> dsml);

}  // namespace gannet::text::grammar
