#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/mapped_file.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/strict_json.h"
#include "cli/command.h"
#include "cli/model_options.h"
#include "cli/progress.h"
#include "engine/loaded_model.h"
#include "text/tokenizer.h"

namespace gannet::cli {
namespace {

struct LogitsOptions {
  std::string model;
  std::string ids;
  std::string out;
  std::optional<std::string> trace;
  std::string activations = "bf16";
  std::string act_quant = "on";
  bool replay = false;
  int64_t chunk = 0;
  int64_t prefix = 0;
  int64_t decode = 0;
  std::string device = "cpu";
  int64_t threads = 0;
};

Result<std::vector<int32_t>> ids_from_json(const std::string& text, const std::string& name) {
  GANNET_TRY_STATUS(check_utf8(text, name));
  GANNET_TRY(const nlohmann::json json, parse_strict_json(text, name));
  if (!json.is_array()) return invalid_input("{}: is {}; it must be a JSON array of token ids", name, shown(json));
  std::vector<int32_t> ids;
  for (const auto& element : json) {
    if (!element.is_number_integer() || element < 0 || element > INT32_MAX) {
      return invalid_input("{}: element {} is {}; it must be a token id, a whole number from 0", name, ids.size(),
                           shown(element));
    }
    ids.push_back(element.get<int32_t>());
  }
  return ids;
}

Result<std::vector<int32_t>> read_ids(const std::string& path) {
  if (path == "-") {
    const std::string text((std::istreambuf_iterator<char>(std::cin)), std::istreambuf_iterator<char>());
    return ids_from_json(text, "standard input");
  }
  if (path.ends_with(".safetensors")) {
    GANNET_TRY(const SafetensorsFile file, SafetensorsFile::open(path));
    return file.int32_vector("ids");
  }
  GANNET_TRY(const std::string text, read_file(path));
  return ids_from_json(text, path);
}

// The file is written beside its place and then put there, which would do away with a device or a pipe.
Status check_output(const std::string& option, const std::string& path) {
  namespace fs = std::filesystem;
  if (path.empty()) return invalid_input("{} is empty; it must be the file to write", option);
  std::error_code ignored;
  const auto status = fs::symlink_status(path, ignored);
  if (!fs::exists(status) || fs::is_regular_file(status)) return {};
  return failed("{} is '{}', which is there and no regular file; it must be a file to write or replace", option, path);
}

Status check(const LogitsOptions& options, const Config& config, const std::vector<int32_t>& ids) {
  const auto count = static_cast<int64_t>(ids.size());
  if (ids.empty()) return invalid_input("{}: holds no token ids; at least one is needed", options.ids);
  if (count > config.max_position_embeddings) {
    return invalid_input("{}: holds {} token ids; the model's context is {}", options.ids, count,
                         config.max_position_embeddings);
  }
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0 || ids[i] >= config.vocab_size) {
      return invalid_input("{}: id {} at position {} is outside the vocabulary of {}", options.ids, ids[i], i,
                           config.vocab_size);
    }
  }
  if (options.prefix >= count) {
    return invalid_input("--prefix is {}; it must be less than the {} ids given", options.prefix, count);
  }
  const int64_t ratio = config.compress_ratios.empty()
                            ? 1
                            : *std::max_element(config.compress_ratios.begin(), config.compress_ratios.end());
  if (ratio > 1 && options.prefix % ratio != 0) {
    return invalid_input("--prefix is {}; it must be a multiple of {}, as a hit ends on a whole group", options.prefix,
                         ratio);
  }
  if (options.decode > count - options.prefix) {
    return invalid_input("--decode is {}; it must be at most {}, the ids behind the prefix", options.decode,
                         count - options.prefix);
  }
  return {};
}

// Collects what check_trace reads: the rows of all passes, one after another.
class Trace : public LayerObserver {
 public:
  explicit Trace(const Config& config) : config_(config) {}

  void layer_in(int64_t n, std::span<const int32_t> rows, const float* streams, const float* pre) override {
    record(fmt::format("layer.{}", n), "in", rows, streams, pre);
  }
  void layer_out(int64_t n, std::span<const int32_t> rows, const float* streams, const float* pre) override {
    record(fmt::format("layer.{}", n), "out", rows, streams, pre);
  }
  void logits(const float* values, int64_t rows) {
    logits_.insert(logits_.end(), values, values + rows * config_.vocab_size);
  }

  Status write(const std::string& path, const std::vector<int32_t>& ids) const {
    std::vector<NamedTensor> tensors;
    tensors.push_back(named_tensor("ids", {static_cast<int64_t>(ids.size())}, ids));
    for (const auto& [name, rows] : rows_) {
      tensors.push_back(named_tensor(name, {static_cast<int64_t>(rows.size())}, rows));
    }
    for (const auto& [name, values] : streams_) {
      const int64_t width = config_.hc_mult * config_.hidden_size;
      tensors.push_back(named_tensor(
          name, {static_cast<int64_t>(values.size()) / width, config_.hc_mult, config_.hidden_size}, values));
    }
    for (const auto& [name, values] : pre_) {
      tensors.push_back(
          named_tensor(name, {static_cast<int64_t>(values.size()) / config_.hc_mult, config_.hc_mult}, values));
    }
    const auto rows = static_cast<int64_t>(logits_.size()) / config_.vocab_size;
    tensors.push_back(named_tensor("logits", {rows, config_.vocab_size}, logits_));
    return write_safetensors(path, tensors);
  }

 private:
  void record(const std::string& layer, const char* side, std::span<const int32_t> rows, const float* streams,
              const float* pre) {
    const auto count = static_cast<int64_t>(rows.size());
    append(rows_[fmt::format("{}.rows_{}", layer, side)], rows.data(), count);
    append(streams_[fmt::format("{}.streams_{}", layer, side)], streams, count * config_.hc_mult * config_.hidden_size);
    append(pre_[fmt::format("{}.pre_{}", layer, side)], pre, count * config_.hc_mult);
  }
  template <class T>
  static void append(std::vector<T>& to, const T* from, int64_t count) {
    to.insert(to.end(), from, from + count);
  }

  const Config& config_;
  std::map<std::string, std::vector<int32_t>> rows_;
  std::map<std::string, std::vector<float>> streams_;
  std::map<std::string, std::vector<float>> pre_;
  std::vector<float> logits_;
};

// Feeds ids to the model and collects the logits of every row that the decoder layers run on.
class Run {
 public:
  Run(LoadedModel& loaded, const std::vector<int32_t>& ids)
      : model_(loaded.model()), ids_(ids), blocks_(loaded.pool().table()), state_(loaded.sequence(0)) {
    GANNET_CHECK(blocks_.grow(static_cast<int64_t>(ids.size())));
    state_.begin({.blocks = blocks_.ids().data()});
  }

  SequenceState& state() { return state_; }
  // What is left of the first `tokens` tokens is what a prefix cache keeps; their last window runs again.
  void become_hit(int64_t tokens) {
    const int64_t first = std::max<int64_t>(0, tokens - model_.config().sliding_window);
    state_.begin({.blocks = blocks_.ids().data(),
                  .first = first,
                  .cached = tokens,
                  .encoder_from = first,
                  .history = model_.history({ids_.data(), static_cast<size_t>(first)})});
  }
  // Runs tokens up to `end` in passes of at most `chunk` rows.
  void run(int64_t end, int64_t chunk, Trace* trace) {
    while (state_.length() < end) {
      step(std::min(chunk, end - state_.length()), trace);
      progress_(state_.length(), static_cast<int64_t>(ids_.size()));
    }
  }
  void forget_results() {
    rows_.clear();
    logits_.clear();
  }
  // `rows` I32 and `logits` F32 [rows, vocab].
  Status write(const std::string& path) const {
    const auto count = static_cast<int64_t>(rows_.size());
    return write_safetensors(path, {named_tensor("rows", {count}, rows_),
                                    named_tensor("logits", {count, model_.config().vocab_size}, logits_)});
  }

 private:
  void step(int64_t rows, Trace* trace) {
    const int64_t start = state_.length();
    Batch batch;
    batch.ids.assign(ids_.begin() + start, ids_.begin() + start + rows);
    batch.sequences.push_back({.state = &state_, .first_row = 0, .rows = rows});
    for (int64_t r = 0; r < rows; ++r) {
      if (start + r < state_.decoder_from()) continue;
      batch.logit_rows.push_back(static_cast<int32_t>(r));
      rows_.push_back(static_cast<int32_t>(start + r));
    }
    const size_t before = logits_.size();
    logits_.resize(before + batch.logit_rows.size() * model_.config().vocab_size);
    model_.forward(batch, logits_.data() + before, trace);
    if (trace != nullptr) trace->logits(logits_.data() + before, static_cast<int64_t>(batch.logit_rows.size()));
  }

  Model& model_;
  const std::vector<int32_t>& ids_;
  BlockTable blocks_;
  SequenceState state_;
  std::vector<int32_t> rows_;
  std::vector<float> logits_;
  ProgressLine progress_{"tokens"};
};

// Runs the first ids as a request of their own, then keeps what a prefix cache keeps. Without bounded replay that
// includes the windows, so the sequence simply goes on.
void run_prefix(const LogitsOptions& options, const Config& config, int64_t chunk, Run& run) {
  const int64_t window = config.sliding_window;
  if (options.replay) run.state().set_decoder_from(std::max<int64_t>(0, options.prefix - window));
  run.run(options.prefix, chunk, nullptr);
  run.forget_results();
  if (options.replay) run.become_hit(options.prefix);
}

Result<std::vector<int32_t>> token_map_of(const std::filesystem::path& directory, const Config& config) {
  if (config.engram_layer_ids.empty()) return std::vector<int32_t>();
  GANNET_TRY(const auto tokenizer, text::Tokenizer::load(directory / "tokenizer.json"));
  return text::compressed_token_map(tokenizer, static_cast<int32_t>(config.vocab_size)).ids;
}

Status logits(const LogitsOptions& options) {
  GANNET_TRY_STATUS(check_output("--out", options.out));
  if (options.trace) GANNET_TRY_STATUS(check_output("--trace", *options.trace));
  GANNET_TRY(const auto directory, find_model(options.model));
  GANNET_TRY(const Config config, load_config(directory / "config.json"));
  GANNET_TRY(const std::vector<int32_t> ids, read_ids(options.ids));
  GANNET_TRY_STATUS(check(options, config, ids));
  GANNET_TRY(const auto token_map, token_map_of(directory, config));

  const auto count = static_cast<int64_t>(ids.size());
  const int64_t chunk = options.chunk > 0 ? std::min(options.chunk, count) : count;
  LoadOptions load{
      .directory = directory, .threads = static_cast<int>(options.threads), .model = {}, .token_map = token_map};
  load.model.activations = options.activations == "fp32" ? Activations::fp32 : Activations::bf16;
  load.model.quantize_activations = options.act_quant == "on";
  load.model.max_rows = chunk;
  load.model.max_tokens = count;
  load.model.device = options.device == "cuda" ? DeviceKind::cuda : DeviceKind::cpu;
  load.model.graphs = !options.trace;
  GANNET_TRY(const auto loaded, LoadedModel::open(std::move(load)));

  Run run(*loaded, ids);
  if (options.prefix > 0) run_prefix(options, config, chunk, run);
  const int64_t prompt = count - options.decode;
  if (options.replay) run.state().set_decoder_from(std::max<int64_t>(0, prompt - config.sliding_window));
  std::optional<Trace> trace;
  if (options.trace) trace.emplace(config);
  run.run(prompt, chunk, trace ? &*trace : nullptr);
  run.run(count, 1, trace ? &*trace : nullptr);
  if (trace) GANNET_TRY_STATUS(trace->write(*options.trace, ids));
  return run.write(options.out);
}

}  // namespace

void add_logits(Command& root) {
  static LogitsOptions options;
  Command command = root.subcommand("logits", "Write the model's logits for given token ids");
  command.positional("MODEL", options.model, "Checkpoint directory, or the name of one under models/");
  command.required_option("--ids", options.ids,
                          "JSON array of token ids, safetensors file with I32 'ids', or - for stdin");
  command.required_option("--out", options.out, "Safetensors file to write: 'rows' I32 and 'logits' F32 [rows, vocab]");
  command.option("--trace", options.trace, "Safetensors file for what went into and came out of every layer");
  command.choice("--activations", options.activations, {"bf16", "fp32"}, "Round activations to bf16, or keep fp32");
  command.choice("--act-quant", options.act_quant, {"on", "off"}, "FP8 rounding in front of FP8 and FP4 linears");
  command.on_off("swa-bounded-replay", options.replay, "Run decoder layers on the last window of the prompt only");
  command.option("--chunk", options.chunk, 0, INT32_MAX, "Prompt rows a pass; 0 takes the whole prompt at once");
  command.option("--prefix", options.prefix, 0, INT32_MAX, "First run that many ids alone, then the whole as a hit");
  command.option("--decode", options.decode, 0, INT32_MAX, "Feed that many of the last ids one at a time");
  command.choice("--device", options.device, {"cpu", "cuda"}, "Where to run");
  command.option("--threads", options.threads, 0, 1024, "CPU threads; 0: one for each core that this process may use");
  command.example("gannet logits nano --ids ids.json --out logits.safetensors --trace trace.safetensors");
  command.action([] { return logits(options); });
}

}  // namespace gannet::cli
