#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/version.h"
#include "engine/engine.h"
#include "server/answer_memory.h"
#include "server/responses_store.h"
#include "text/chat_request.h"
#include "text/tokenizer.h"

namespace gannet::server {

// Makes the constraint that gives an answer the form its request asks for; null if it asks for none. Errors
// (invalid_input) name the field. Called for each answer, on any thread.
using MakeConstraint = std::function<Result<std::shared_ptr<TokenConstraint>>(const text::ChatRequest&)>;

// What protocols need to know of the model they serve. The plain pointers are not owned and outlive every request.
struct ServedModel {
  std::vector<std::string> names;  // at least one; requests may use any, answers carry the first
  const text::Tokenizer* tokenizer = nullptr;
  Engine* engine = nullptr;
  text::ConversionOptions conversion;
  int64_t created = 0;                           // Unix time of the start
  int64_t max_unfinished = 512;                  // requests inside the engine; more are answered with 429
  bool accepts_priority = false;                 // of requests; else all are equal
  std::chrono::milliseconds request_timeout{0};  // every request ends with `timed_out` after that long; 0: never
  std::string system_fingerprint = std::string("gannet-") + kVersion;
  MakeConstraint make_constraint;  // empty: requests that need a constraint are refused
  std::shared_ptr<AnswerMemory> memory = std::make_shared<AnswerMemory>();
  std::shared_ptr<ResponsesStore> responses = std::make_shared<ResponsesStore>();
};

}  // namespace gannet::server
