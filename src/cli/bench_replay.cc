#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <future>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <vector>

#include "base/device.h"
#include "cache/record_layout.h"
#include "cli/bench.h"
#include "cli/model_options.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "server/model_session.h"

// What bounded replay saves: time to the first token and rows that run, for prompts that are new and for prompts whose
// beginning is cached.
namespace gannet::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kTail = 64;  // tokens behind the part that a warm prompt shares with the one before it
constexpr int kRuns = 3;

struct Options {
  std::string model = "nano";
  ModelOptions engine;
  int64_t longest = 16384;
  bool json = false;
};

struct Measured {
  int64_t prompt = 0;
  bool replay = false;
  bool warm = false;
  double seconds = 0;  // to the first token, median
  int64_t encoder_rows = 0;
  int64_t decoder_rows = 0;
  int64_t cached_tokens = 0;
};

std::vector<int32_t> random_ids(std::mt19937& random, int64_t count, int64_t vocab) {
  std::vector<int32_t> ids(count);
  // Control tokens lie at the ends of the vocabulary.
  for (int32_t& id : ids) id = static_cast<int32_t>(16 + random() % static_cast<uint64_t>(vocab / 2));
  return ids;
}

// Runs a prompt to its first token.
Result<Measured> run(Engine& engine, std::vector<int32_t> prompt) {
  Measured measured{.prompt = static_cast<int64_t>(prompt.size())};
  const EngineStats before = engine.stats();
  const auto ended = std::make_shared<std::promise<Result<FinishReason>>>();
  Request request{.prompt = std::move(prompt), .sampling = {.temperature = 0, .max_tokens = 1}};
  request.on_end = [ended](Result<FinishReason> reason) { ended->set_value(std::move(reason)); };
  const auto begin = Clock::now();
  GANNET_TRY_STATUS(engine.submit(std::move(request)));
  GANNET_TRY_STATUS(ended->get_future().get());
  measured.seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  const EngineStats after = engine.stats();
  measured.encoder_rows = after.encoder_rows - before.encoder_rows;
  measured.decoder_rows = after.decoder_rows - before.decoder_rows;
  measured.cached_tokens = after.prefix_cache_hits - before.prefix_cache_hits;
  return measured;
}

const Measured& median(std::vector<Measured>& runs) {
  std::sort(runs.begin(), runs.end(), [](const Measured& a, const Measured& b) { return a.seconds < b.seconds; });
  return runs[runs.size() / 2];
}

// A new prompt, then one that shares all but its end: cold and warm.
Status measure(Engine& engine, int64_t length, bool replay, std::vector<Measured>& results) {
  std::mt19937 random(static_cast<uint32_t>(length));
  std::vector<Measured> cold;
  std::vector<Measured> warm;
  for (int i = 0; i < kRuns; ++i) {
    auto prompt = random_ids(random, length, engine.config().vocab_size);
    GANNET_TRY(cold.emplace_back(), run(engine, prompt));
    const auto tail = random_ids(random, kTail, engine.config().vocab_size);
    std::copy(tail.begin(), tail.end(), prompt.end() - kTail);
    GANNET_TRY(warm.emplace_back(), run(engine, prompt));
  }
  for (auto* runs : {&cold, &warm}) {
    Measured& result = results.emplace_back(median(*runs));
    result.replay = replay;
    result.warm = runs == &warm;
  }
  return {};
}

std::string as_table(const std::vector<Measured>& results, const Config& config) {
  std::string text = fmt::format(
      "{}. Time to the first token, median of {} runs; rows run through the encoder and the decoder layers. A warm "
      "prompt\n"
      "shares all but its last {} tokens with the one before it.\n"
      "Kept of each token: {:.0f} bytes; without replay {} bytes of windows more for each place where a hit may "
      "end.\n\n"
      "{:>7} {:>5} {:>7} {:>9} {:>9} {:>9} {:>8}\n",
      processor_name(), kRuns, kTail, global_bytes_per_token(config), window_state_bytes(config), "prompt", "cache",
      "replay", "seconds", "encoder", "decoder", "cached");
  for (const Measured& m : results) {
    fmt::format_to(std::back_inserter(text), "{:>7} {:>5} {:>7} {:>9.3f} {:>9} {:>9} {:>8}\n", m.prompt,
                   m.warm ? "warm" : "cold", m.replay ? "on" : "off", m.seconds, m.encoder_rows, m.decoder_rows,
                   m.cached_tokens);
  }
  return text;
}

std::string as_json(const std::vector<Measured>& results, const Config& config) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const Measured& m : results) {
    list.push_back({{"prompt_tokens", m.prompt},
                    {"warm", m.warm},
                    {"replay", m.replay},
                    {"seconds", m.seconds},
                    {"encoder_rows", m.encoder_rows},
                    {"decoder_rows", m.decoder_rows},
                    {"cached_tokens", m.cached_tokens}});
  }
  const nlohmann::ordered_json result = {{"processor", processor_name()},
                                         {"runs", kRuns},
                                         {"kv_bytes_per_token", global_bytes_per_token(config)},
                                         {"window_bytes", window_state_bytes(config)},
                                         {"results", list}};
  return result.dump(2) + "\n";
}

Status bench_replay(Options options) {
  std::vector<Measured> results;
  std::optional<Config> config;
  ProgressLine progress("prompts");
  std::vector<int64_t> lengths;
  for (int64_t length = 1024; length <= options.longest; length *= 2) lengths.push_back(length);
  for (const bool replay : {false, true}) {
    options.engine.swa_bounded_replay = replay;
    GANNET_TRY(auto session, open_session(options.model, options.engine));
    config = session.config;
    for (const int64_t length : lengths) {
      if (length >= session.engine->max_model_len()) {
        return invalid_input("--longest is {}; the model's context of {} tokens leaves no room for an answer",
                             options.longest, session.engine->max_model_len());
      }
      progress(std::ssize(results), 4 * std::ssize(lengths));
      GANNET_TRY_STATUS(measure(*session.engine, length, replay, results));
    }
  }
  std::stable_sort(results.begin(), results.end(), [](const Measured& a, const Measured& b) {
    return a.prompt != b.prompt ? a.prompt < b.prompt : a.warm < b.warm;
  });
  return write_output(options.json ? as_json(results, *config) : as_table(results, *config));
}

}  // namespace

void add_bench_replay(Command& bench) {
  const auto options = std::make_shared<Options>();
  auto command = bench.subcommand("replay", "Time and rows to the first token, with bounded replay off and on");
  command.optional_positional("MODEL", options->model, "Checkpoint directory, or the name of one under models/");
  command.option("--longest", options->longest, 1024, INT32_MAX, "Prompts are 1024 tokens and twice that, up to this");
  command.flag("--json", options->json, "Machine-readable");
  add_model_options(command, options->engine);
  command.example("gannet bench replay nano");
  command.action([options] { return bench_replay(*options); });
}

}  // namespace gannet::cli
