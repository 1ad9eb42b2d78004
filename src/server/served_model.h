#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "text/chat_request.h"
#include "text/tokenizer.h"

namespace gannet::server {

// What protocols need to know of the model they serve. The pointers are not owned and outlive every request.
struct ServedModel {
  std::vector<std::string> names;  // at least one; requests may use any, answers carry the first
  const text::Tokenizer* tokenizer = nullptr;
  Engine* engine = nullptr;
  text::ConversionOptions conversion;
  int64_t created = 0;                           // Unix time of the start
  int64_t max_unfinished = 512;                  // requests inside the engine; more are answered with 429
  std::chrono::milliseconds request_timeout{0};  // every request ends with `timed_out` after that long; 0: never
};

}  // namespace gannet::server
