#pragma once

#include <span>
#include <string_view>

#include "text/protocol/fields.h"

namespace gannet::text {

// Members of a body that no protocol of this server knows are ignored. Says so in the log, once for each name: `known`
// are the names that `protocol` reads or leaves out on purpose, besides those that all protocols share.
void note_unknown_fields(std::string_view protocol, const Fields& body, std::span<const std::string_view> known);

}  // namespace gannet::text
