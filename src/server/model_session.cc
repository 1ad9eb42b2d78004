#include "server/model_session.h"

#include <system_error>
#include <utility>

#include "cache/record_layout.h"
#include "checkpoint/checkpoint.h"
#include "server/worker_permits.h"
#include "text/unsampled_ids.h"

namespace gannet::server {
namespace {

namespace fs = std::filesystem;

// The last part of a path, also of one that ends in a slash or is ".".
std::string last_part(const fs::path& path) {
  fs::path normal = fs::absolute(path).lexically_normal();
  if (!normal.has_filename()) normal = normal.parent_path();
  return normal.filename().string();
}

Result<std::unique_ptr<text::Tokenizer>> load_tokenizer(const fs::path& directory, const Config& config) {
  const fs::path file = directory / "tokenizer.json";
  std::error_code ignored;
  if (!fs::exists(file, ignored)) {
    return invalid_input("{}: missing; text goes in and out through the model's tokenizer", file.string());
  }
  GANNET_TRY(auto tokenizer, text::Tokenizer::load(file));
  if (tokenizer.vocab_size() > config.vocab_size) {
    return invalid_input("{}: has {} ids, more than the vocab_size {} in config.json", file.string(),
                         tokenizer.vocab_size(), config.vocab_size);
  }
  return std::make_unique<text::Tokenizer>(std::move(tokenizer));
}

Result<std::vector<int32_t>> engram_map(const ModelFacts& facts) {
  if (facts.config.engram_layer_ids.empty()) return std::vector<int32_t>();
  auto map = text::compressed_token_map(*facts.tokenizer, static_cast<int32_t>(facts.config.vocab_size));
  if (map.size != facts.config.engram_compressed_vocab_size) {
    return invalid_input("{}: its tokens fall into {} Engram classes, but config.json says {}",
                         (facts.directory / "tokenizer.json").string(), map.size,
                         facts.config.engram_compressed_vocab_size);
  }
  return std::move(map.ids);
}

}  // namespace

Result<ModelFacts> read_model(std::string_view model) {
  ModelFacts facts;
  GANNET_TRY(facts.directory, find_model(model));
  facts.name = last_part(facts.directory);
  GANNET_TRY(const Checkpoint checkpoint, Checkpoint::open(facts.directory));
  facts.config = checkpoint.config();
  GANNET_TRY(facts.tokenizer, load_tokenizer(facts.directory, facts.config));
  for (const auto& [name, tensor] : checkpoint.tensors()) {
    facts.weight_bytes += static_cast<int64_t>(tensor.bytes.size());
  }
  facts.kv_bytes_per_token = global_bytes_per_token(facts.config);
  facts.window_bytes = window_state_bytes(facts.config);
  return facts;
}

Result<ModelSession> open_model(ModelFacts facts, EngineOptions options) {
  options.model = facts.directory;
  GANNET_TRY(options.engram_token_map, engram_map(facts));
  ModelSession session;
  session.name = std::move(facts.name);
  session.config = std::move(facts.config);
  session.tokenizer = std::move(facts.tokenizer);
  session.grammars = std::make_unique<text::GrammarCompiler>(*session.tokenizer, session.config.vocab_size,
                                                             static_cast<int32_t>(session.config.eos_token_id));
  options.never_sampled = text::unsampled_ids(*session.tokenizer, session.config.vocab_size);
  GANNET_TRY(session.engine, create_engine(std::move(options)));
  return session;
}

MakeConstraint make_constraint(const ModelSession& session) {
  return [grammars = session.grammars.get()](const text::ChatRequest& request) {
    const WorkerPause pause;  // others need not wait while a grammar is compiled, or waits for its turn
    return grammars->constrain(request);
  };
}

}  // namespace gannet::server
