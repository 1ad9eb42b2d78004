#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "base/error.h"
#include "checkpoint/config.h"

namespace gannet {

// A checkpoint of random numbers in the released format, for tests. Same config and seed give the same bytes
// everywhere. The numbers are shaped like trained weights: block scales vary over several octaves, some blocks are all
// zero (of either sign), some saturate; sublayers add about a third of what the streams carry, since a random network
// in which they add more is chaotic and tells a rounding from a mistake no longer.
struct RandomCheckpoint {
  Config config;
  uint64_t seed = 0;
  std::string tokenizer_json;                           // becomes tokenizer.json; empty: none
  std::function<void(int64_t, int64_t)> progress = {};  // (bytes done, bytes in all), now and then
};

// Writes shards (two at least, some weights and their scales in different ones), index, config.json and tokenizer.json
// into `directory`, which must be empty or not exist. After an error nothing is left of it.
Status write_random_checkpoint(const RandomCheckpoint& checkpoint, const std::filesystem::path& directory);

}  // namespace gannet
