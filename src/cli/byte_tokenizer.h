#pragma once

#include <cstdint>
#include <string>

namespace gannet::cli {

// Fewest ids that byte_tokenizer_json needs: three for sentence control, one for each byte, and the chat's control
// tokens.
int64_t least_byte_tokenizer_size();

// A tokenizer.json of exactly `vocab_size` ids for models of random numbers: one token for each byte, no merges, the
// released pre-tokenizer, the chat's control tokens last, and placeholders between.
std::string byte_tokenizer_json(int64_t vocab_size);

}  // namespace gannet::cli
