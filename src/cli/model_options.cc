#include "cli/model_options.h"

#include <utility>

#include "text/utf8.h"

namespace gannet::cli {

void add_model_options(Command& command, ModelOptions& options) {
  command.option("--threads", options.threads, 0, 1024, "CPU threads; 0 takes every processor this process may use");
  command.option("--max-model-len", options.max_model_len, 2, INT32_MAX,
                 "Longest prompt and answer together, in tokens; without it the model's own limit");
  command.on_off("swa-bounded-replay", options.swa_bounded_replay,
                 "Run decoder layers on the last window of a prompt only");
  command.choice("--activations", options.activations, {"bf16", "fp32"}, "Round activations to bf16, or keep fp32");
}

Result<EngineOptions> engine_options(const ModelOptions& options, const Config& config) {
  if (options.max_model_len.value_or(0) > config.max_position_embeddings) {
    return invalid_input("--max-model-len is {}; the model's own limit is {}", *options.max_model_len,
                         config.max_position_embeddings);
  }
  EngineOptions engine;
  engine.threads = static_cast<int>(options.threads);
  engine.bf16_activations = options.activations == "bf16";
  engine.swa_bounded_replay = options.swa_bounded_replay;
  engine.max_model_len = options.max_model_len.value_or(0);
  return engine;
}

Result<server::ModelSession> open_session(const std::string& model, const ModelOptions& options) {
  GANNET_TRY(server::ModelFacts facts, server::read_model(model));
  GANNET_TRY(EngineOptions engine, engine_options(options, facts.config));
  return server::open_model(std::move(facts), std::move(engine));
}

Status check_utf8(std::string_view text, std::string_view name) {
  const size_t valid = text::valid_utf8_length(text);
  if (valid == text.size()) return {};
  return invalid_input("{} is not UTF-8: byte {} is 0x{:02x}", name, valid, static_cast<unsigned char>(text[valid]));
}

}  // namespace gannet::cli
