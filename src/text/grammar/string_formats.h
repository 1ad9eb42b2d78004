#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace gannet::text::grammar {

// What is done about a value of the keyword "format".
struct StringFormat {
  std::optional<std::string> pattern;  // enforced: the whole text matches
  bool refused = false;                // of the standard, but nothing that a grammar can keep
};

// Names that the standard does not define are notes to the reader, like a description.
StringFormat string_format(std::string_view name);

}  // namespace gannet::text::grammar
