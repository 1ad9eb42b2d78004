#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/error.h"
#include "engine/engine.h"
#include "server/served_model.h"
#include "text/grammar/answer_grammar.h"
#include "text/tokenizer.h"

namespace gannet::server {

// A model opened for text: what serve, chat and generate share.
struct ModelSession {
  std::string name;  // last part of the model's path
  Config config;
  std::unique_ptr<text::Tokenizer> tokenizer;
  std::unique_ptr<text::GrammarCompiler> grammars;
  std::unique_ptr<Engine> engine;
};

// For requests to a model of this session, which must outlive it.
MakeConstraint make_constraint(const ModelSession& session);

// What is known of a model before its weights are loaded.
struct ModelFacts {
  std::string name;
  std::filesystem::path directory;
  Config config;
  std::unique_ptr<text::Tokenizer> tokenizer;
  int64_t weight_bytes = 0;       // of all tensors in the checkpoint
  double kv_bytes_per_token = 0;  // global KV
  int64_t window_bytes = 0;       // sliding-window state of one sequence
};

// Checks the directory, the config, the tokenizer and the headers of the weights. `model` is a directory or the name
// of one under models/. Errors say which file is at fault.
Result<ModelFacts> read_model(std::string_view model);

// Loads the weights and starts the engine; `options.model` and the Engram token map are filled in.
Result<ModelSession> open_model(ModelFacts facts, EngineOptions options);

}  // namespace gannet::server
