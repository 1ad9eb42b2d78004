#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "checkpoint/config.h"

namespace gannet {

// Small models of this architecture, for tests: every kind of layer at sizes that a laptop runs in a moment.
std::vector<std::string_view> shape_names();

// Number of distinct ids in the compressed token map of that many token ids (spec: model 3.10).
using CompressedVocabSize = std::function<Result<int64_t>(int64_t vocab_size)>;

// The config of a built-in shape. `compressed` is asked only when the shape has Engram layers.
Result<Config> named_shape(std::string_view name, const CompressedVocabSize& compressed);

// The config of a shape that somebody wrote: a config.json in the released dialect, or its text_config keys alone,
// where keys that small models share may be missing. In both, engram_num_embeddings and engram_compressed_vocab_size
// are filled in when absent; `compressed` is asked only for that, and to check the latter when it is there.
Result<Config> parse_shape(std::string_view json, std::string_view name, const CompressedVocabSize& compressed);

}  // namespace gannet
