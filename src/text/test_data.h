#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"

// The frozen cases in tests/data/text, for the tests of this folder.
namespace gannet::text::test_data {

// Content of tests/data/text/`name`; `name`.zst is decompressed if there is only that. Fails the program if it cannot.
std::string read(std::string_view name);
// Its lines, without empty ones. Split at LF only.
std::vector<std::string> read_lines(std::string_view name);

// The released model's tokenizer (129,280 ids) and a small one of the same kind (576 ids), loaded once.
const Tokenizer& released_tokenizer();
const Tokenizer& small_tokenizer();

// Hexadecimal SHA-256 of the ids as little-endian 32-bit numbers.
std::string sha256(std::span<const int32_t> ids);
// Its first 16 digits: how the frozen cases name long lists of ids.
std::string short_hash(std::span<const int32_t> ids);

}  // namespace gannet::text::test_data
