#pragma once

#include <cstdint>
#include <vector>

#include "text/tokenizer.h"

namespace gannet::text {

// Ids that no answer may hold, ascending: the vocabulary's unused places ("place▁holder", "place_holder"), those that
// stand for parts of a picture, begin of sentence and padding, and ids of the model that the tokenizer does not know.
// Quantised or wrongly built models have been seen to sample such ids (spec: text 1.1).
std::vector<int32_t> unsampled_ids(const Tokenizer& tokenizer, int64_t vocab_size);

}  // namespace gannet::text
