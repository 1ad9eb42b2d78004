#pragma once

#include <cstdint>
#include <span>

#include "base/error.h"
#include "text/chat_request.h"
#include "text/grammar/rules.h"
#include "text/grammar/schema_rules.h"

namespace gannet::text::grammar {

struct CallFormat {
  int32_t dsml = 0;          // id of the token in all markup
  bool opens = true;         // the answer begins with the opening of the block; otherwise the prompt ends with it
  bool parallel = true;      // more than one call may be made
  bool only_strict = false;  // schemas are enforced of tools that ask for `strict`, of others the names alone
};

// A block of calls of these tools, as the model's format has it. A tool that does not ask for `strict` and whose schema
// cannot be enforced takes any arguments; of a strict one that is an error (invalid_input).
Result<Part> call_block(Rules& rules, const JsonRules& json, std::span<const ToolDefinition> tools,
                        const CallFormat& format);

}  // namespace gannet::text::grammar
