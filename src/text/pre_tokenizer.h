#pragma once

#include <string_view>
#include <vector>

namespace gannet::text {

// The regular expressions of the released tokenizer.json, applied one after the other; each cuts the pieces of the one
// before into its matches and the stretches between them. pre_tokenize() is written for exactly these.
inline constexpr std::string_view kPreTokenizerPatterns[] = {
    R"(\p{N}{1,3})",
    "[一-龥\u3040-ゟ゠-ヿ]+",
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+"
    "|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"
    "| ?[\\p{P}\\p{S}]+[\r\n]*"
    "|\\s*[\r\n]+"
    "|\\s+(?!\\S)"
    "|\\s+",
};

// Pieces of `text` (valid UTF-8) within which tokens are merged; together they are the whole text. Linear time.
std::vector<std::string_view> pre_tokenize(std::string_view text);

}  // namespace gannet::text
