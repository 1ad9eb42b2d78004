#include <filesystem>
#include <memory>
#include <optional>

#include "base/mapped_file.h"
#include "checkpoint/random_checkpoint.h"
#include "checkpoint/shapes.h"
#include "cli/byte_tokenizer.h"
#include "cli/command.h"
#include "cli/progress.h"
#include "text/tokenizer.h"

namespace gannet::cli {
namespace {

struct Options {
  std::string shape = "small";
  int64_t seed = 0;
  std::optional<std::string> tokenizer;
  std::string directory;
};

// The tokenizer that goes into the checkpoint: the one given, or one of single bytes.
Result<std::string> tokenizer_text(const Options& options, int64_t vocab_size) {
  if (options.tokenizer) return read_file(*options.tokenizer);
  if (vocab_size < least_byte_tokenizer_size()) return std::string();
  return byte_tokenizer_json(vocab_size);
}

Result<text::Tokenizer> parse_tokenizer(const Options& options, const std::string& text) {
  return text::Tokenizer::parse(text, options.tokenizer.value_or("generated tokenizer"));
}

Result<int64_t> compressed_size(const Options& options, int64_t vocab_size) {
  if (vocab_size < 1 || vocab_size > INT32_MAX) return 1;  // refused with the rest of the config
  GANNET_TRY(const std::string text, tokenizer_text(options, vocab_size));
  if (text.empty()) {
    return invalid_input(
        "--tokenizer is missing; Engram layers need one, and with a vocab_size of {} none can be made (from {} on)",
        vocab_size, least_byte_tokenizer_size());
  }
  GANNET_TRY(const auto tokenizer, parse_tokenizer(options, text));
  return text::compressed_token_map(tokenizer, static_cast<int32_t>(vocab_size)).size;
}

Result<Config> shape_config(const Options& options) {
  const auto compressed = [&](int64_t vocab_size) { return compressed_size(options, vocab_size); };
  for (const auto name : shape_names()) {
    if (name == options.shape) return named_shape(name, compressed);
  }
  std::error_code error;
  if (!std::filesystem::exists(options.shape, error)) {
    return invalid_input("--shape is '{}'; it must be one of {}, or a config.json", options.shape,
                         fmt::join(shape_names(), ", "));
  }
  GANNET_TRY(const std::string text, read_file(options.shape));
  return parse_shape(text, options.shape, compressed);
}

// Ids of the tokenizer that the model has no embedding for would be refused only when they are first used.
Status check_tokenizer(const Options& options, const std::string& text, const Config& config) {
  if (text.empty()) return {};
  GANNET_TRY(const auto tokenizer, parse_tokenizer(options, text));
  if (tokenizer.vocab_size() <= config.vocab_size) return {};
  return invalid_input("--tokenizer has {} ids; it must have at most the shape's vocab_size, which is {}",
                       tokenizer.vocab_size(), config.vocab_size);
}

Status make_checkpoint(const Options& options) {
  RandomCheckpoint checkpoint;
  GANNET_TRY(checkpoint.config, shape_config(options));
  checkpoint.seed = static_cast<uint64_t>(options.seed);
  GANNET_TRY(checkpoint.tokenizer_json, tokenizer_text(options, checkpoint.config.vocab_size));
  GANNET_TRY_STATUS(check_tokenizer(options, checkpoint.tokenizer_json, checkpoint.config));
  constexpr double kMega = 1e6;
  ProgressLine line("MB", kMega);
  checkpoint.progress = [&line](int64_t done, int64_t all) { line(done, all); };
  return write_random_checkpoint(checkpoint, options.directory);
}

}  // namespace

void add_make_checkpoint(Command& root) {
  const auto options = std::make_shared<Options>();
  auto command = root.subcommand("make-checkpoint", "Write a random checkpoint in the released format");
  command.option("--shape", options->shape,
                 fmt::format("{}, or a config.json (released dialect, or text_config keys alone)",
                             fmt::join(shape_names(), ", ")));
  command.option("--seed", options->seed, 0, INT64_MAX, "Same shape and seed give the same bytes");
  command.option("--tokenizer", options->tokenizer,
                 "tokenizer.json to put beside it; without one, a tokenizer of single bytes is made");
  command.positional("DIR", options->directory, "Where to write; must be empty or not exist");
  command.example("gannet make-checkpoint --shape small --seed 7 small-model");
  command.action([options] { return make_checkpoint(*options); });
}

}  // namespace gannet::cli
