#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "cache/record_layout.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/manifest.h"
#include "cli/command.h"
#include "cli/output.h"
#include "model/layer_plan.h"

namespace gannet::cli {
namespace {

using nlohmann::ordered_json;

struct Options {
  std::string model;
  bool released = false;
  bool json = false;
};

// 1234567 -> "1,234,567".
std::string with_commas(int64_t number) {
  auto digits = fmt::format("{}", number);
  for (auto i = static_cast<int64_t>(digits.size()) - 3; i > 0; i -= 3) digits.insert(static_cast<size_t>(i), ",");
  return digits;
}

// Text that grows line by line.
class Page {
 public:
  template <class... Args>
  void print(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(text_), format, std::forward<Args>(args)...);
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

struct KvBytes {
  RecordLayout record;
  double global_per_token;
  int64_t window_state;
  int64_t draft_state;  // rings of the draft blocks
};

KvBytes kv_bytes(const Config& config) {
  const auto record = record_layout(config);
  return {record, global_bytes_per_token(config), window_state_bytes(config),
          config.num_nextn_predict_layers * config.sliding_window * record.window_bytes};
}

std::string layer_or_dash(int64_t layer) {
  return layer < 0 ? "-" : fmt::format("{}", layer);
}

std::string candidates_of(const LayerPlan& layer) {
  if (layer.makes_candidates) return "source";
  return layer.restricted ? "restricted" : "-";
}

void print_layers(Page& page, const Config& config) {
  constexpr const char* kRow = "{:>6}  {:<8} {:<9} {:>6}  {:>9}  {:>5}  {:>10}  {:<10}  {}\n";
  page.print(kRow, "layer", "half", "role", "window", "KV source", "ratio", "top-k from", "candidates", "Engram rows");
  const auto plan = plan_layers(config);
  for (size_t n = 0; n < plan.layers.size(); ++n) {
    const auto& layer = plan.layers[n];
    const auto engram =
        layer.engram < 0 ? "-" : with_commas(config.engram_num_embeddings[static_cast<size_t>(layer.engram)]);
    page.print(kRow, n, layer.decoder ? "decoder" : "encoder", name_of(layer.role), config.sliding_window,
               layer_or_dash(layer.kv_source_layer), layer.ratio, layer_or_dash(layer.index_source_layer),
               candidates_of(layer), engram);
  }
  for (int64_t block = 0; block < config.num_nextn_predict_layers; ++block) {
    page.print(kRow, fmt::format("mtp.{}", block), "draft", "DSpark", config.sliding_window, "-", 0, "-", "-", "-");
  }
}

void print_tensors(Page& page, const ManifestTotals& sums) {
  constexpr const char* kRow = "{:<24} {:>8} {:>19} {:>19}\n";
  page.print(kRow, "group", "tensors", "bytes", "parameters");
  const auto print = [&](std::string_view name, const TensorCount& count) {
    page.print(kRow, name, with_commas(count.tensors), with_commas(count.bytes), with_commas(count.parameters));
  };
  for (size_t i = 0; i < kTensorGroups; ++i) {
    if (sums.by_group[i].tensors > 0) print(name_of(static_cast<TensorGroup>(i)), sums.by_group[i]);
  }
  print("all", sums.all);
  page.print("\n");
  page.print(kRow, "type", "tensors", "bytes", "parameters");
  for (size_t i = 0; i < kDTypes; ++i) {
    if (sums.by_dtype[i].tensors > 0) print(name_of(static_cast<DType>(i)), sums.by_dtype[i]);
  }
}

std::string inspect_text(const std::string& name, const Config& config, const ManifestTotals& sums) {
  Page page;
  const auto kv = kv_bytes(config);
  page.print("{}\n\n", name);
  print_layers(page, config);
  page.print("\n");
  print_tensors(page, sums);
  page.print("\n{} tensors, {} payload bytes, {} parameters (FP4 bytes hold two; scales are none)\n",
             with_commas(sums.all.tensors), with_commas(sums.all.bytes), with_commas(sums.all.parameters));
  page.print("{} bytes of global KV per token: entries of {} bytes, index keys of {}\n", kv.global_per_token,
             kv.record.entry_bytes, kv.record.key_bytes);
  page.print("{} bytes of window state per sequence: {} layers of {} records of {} bytes\n",
             with_commas(kv.window_state), config.num_hidden_layers, config.sliding_window, kv.record.window_bytes);
  if (kv.draft_state > 0) page.print("{} bytes of draft window state per sequence\n", with_commas(kv.draft_state));
  page.print("{} tokens of context, {} ids of vocabulary\n", with_commas(config.max_position_embeddings),
             with_commas(config.vocab_size));
  return page.text();
}

// A layer's number, null for none.
ordered_json layer_or_null(int64_t layer) {
  return layer < 0 ? ordered_json() : ordered_json(layer);
}

ordered_json layers_json(const Config& config) {
  ordered_json layers = ordered_json::array();
  const auto plan = plan_layers(config);
  for (size_t n = 0; n < plan.layers.size(); ++n) {
    const auto& layer = plan.layers[n];
    const auto engram = layer.engram < 0
                            ? ordered_json()
                            : ordered_json(config.engram_num_embeddings[static_cast<size_t>(layer.engram)]);
    layers.push_back({{"layer", n},
                      {"half", layer.decoder ? "decoder" : "encoder"},
                      {"role", name_of(layer.role)},
                      {"window", config.sliding_window},
                      {"kv_source", layer_or_null(layer.kv_source_layer)},
                      {"ratio", layer.ratio},
                      {"index_source", layer_or_null(layer.index_source_layer)},
                      {"makes_candidates", layer.makes_candidates},
                      {"restricted", layer.restricted},
                      {"engram_rows", engram}});
  }
  return layers;
}

ordered_json count_json(const TensorCount& count) {
  return {{"tensors", count.tensors}, {"bytes", count.bytes}, {"parameters", count.parameters}};
}

std::string inspect_json(const std::string& name, const Config& config, const ManifestTotals& sums) {
  ordered_json groups = ordered_json::object();
  for (size_t i = 0; i < kTensorGroups; ++i) {
    groups[std::string(name_of(static_cast<TensorGroup>(i)))] = count_json(sums.by_group[i]);
  }
  ordered_json dtypes = ordered_json::object();
  for (size_t i = 0; i < kDTypes; ++i) {
    if (sums.by_dtype[i].tensors > 0)
      dtypes[std::string(name_of(static_cast<DType>(i)))] = count_json(sums.by_dtype[i]);
  }
  const auto kv = kv_bytes(config);
  const ordered_json result = {{"model", name},
                               {"layers", layers_json(config)},
                               {"draft_blocks", config.num_nextn_predict_layers},
                               {"groups", groups},
                               {"dtypes", dtypes},
                               {"total", count_json(sums.all)},
                               {"kv",
                                {{"global_bytes_per_token", kv.global_per_token},
                                 {"window_bytes_per_sequence", kv.window_state},
                                 {"draft_window_bytes_per_sequence", kv.draft_state},
                                 {"window_record_bytes", kv.record.window_bytes},
                                 {"entry_bytes", kv.record.entry_bytes},
                                 {"index_key_bytes", kv.record.key_bytes}}},
                               {"context", config.max_position_embeddings},
                               {"vocab_size", config.vocab_size}};
  return result.dump(2) + "\n";
}

Status inspect(const Options& options) {
  if (options.released && !options.model.empty()) {
    return invalid_input("MODEL is '{}'; it must be left out with --released", options.model);
  }
  if (!options.released && options.model.empty()) {
    return invalid_input("MODEL is missing; it must be a checkpoint directory or a name under models/, or --released");
  }
  std::string name = "DeepSeek-V4.1-Flash as released";
  Config config = released_config();
  if (!options.released) {
    GANNET_TRY(const auto directory, find_model(options.model));
    GANNET_TRY(const auto checkpoint, Checkpoint::open(directory));
    name = directory.string();
    config = checkpoint.config();
  }
  const auto sums = totals(manifest(config));
  return write_output(options.json ? inspect_json(name, config, sums) : inspect_text(name, config, sums));
}

}  // namespace

void add_inspect(Command& root) {
  const auto options = std::make_shared<Options>();
  auto command =
      root.subcommand("inspect", "Verify a checkpoint; print its layer plan, tensors by group, and KV bytes");
  command.optional_positional("MODEL", options->model, "Checkpoint directory, or the name of one under models/");
  command.flag("--released", options->released, "The released DeepSeek-V4.1-Flash instead; needs no files");
  command.flag("--json", options->json, "Machine-readable");
  command.example("gannet inspect --released");
  command.action([options] { return inspect(*options); });
}

}  // namespace gannet::cli
