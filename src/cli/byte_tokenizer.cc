#include "cli/byte_tokenizer.h"

#include <fmt/format.h>

#include <iterator>
#include <nlohmann/json.hpp>
#include <string_view>

#include "text/byte_alphabet.h"
#include "text/pre_tokenizer.h"

namespace gannet::cli {
namespace {

using nlohmann::ordered_json;

constexpr int64_t kBytes = 256;

// Ids 0, 1 and 2, as in the released tokenizer.
constexpr std::string_view kFirst[] = {"<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜▁pad▁｜>"};
// The last ids.
constexpr std::string_view kLast[] = {
    "<｜System｜>",          "<｜User｜>",          "<｜Assistant｜>", "<think>",         "</think>",     "｜DSML｜",
    "<｜latest_reminder｜>", "<｜action｜>",        "<｜query｜>",     "<｜authority｜>", "<｜domain｜>", "<｜title｜>",
    "<｜read_url｜>",        "<｜deepseek_image｜>"};

ordered_json added_token(int64_t id, std::string_view text) {
  const bool special = text.starts_with('<') && text.find("think") == std::string_view::npos;
  return {{"id", id},        {"content", text},     {"single_word", false}, {"lstrip", false},
          {"rstrip", false}, {"normalized", false}, {"special", special}};
}

ordered_json pre_tokenizer() {
  ordered_json stages = ordered_json::array();
  for (const auto pattern : text::kPreTokenizerPatterns) {
    stages.push_back(
        {{"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", "Isolated"}, {"invert", false}});
  }
  stages.push_back({{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", false}});
  return {{"type", "Sequence"}, {"pretokenizers", stages}};
}

}  // namespace

int64_t least_byte_tokenizer_size() {
  return std::ssize(kFirst) + kBytes + std::ssize(kLast);
}

std::string byte_tokenizer_json(int64_t vocab_size) {
  ordered_json vocabulary = ordered_json::object();
  ordered_json added = ordered_json::array();
  const int64_t placeholders = vocab_size - least_byte_tokenizer_size();
  int64_t id = 0;
  const auto add = [&](std::string_view text) {
    vocabulary[std::string(text)] = id;
    added.push_back(added_token(id++, text));
  };
  for (const auto text : kFirst) add(text);
  for (int64_t byte = 0; byte < kBytes; ++byte) {
    vocabulary[text::spell_byte(static_cast<unsigned char>(byte))] = id++;
  }
  for (int64_t i = 0; i < placeholders; ++i) add(fmt::format("<｜place▁holder▁no▁{}｜>", i));
  for (const auto text : kLast) add(text);

  const ordered_json byte_level = {
      {"type", "ByteLevel"}, {"add_prefix_space", true}, {"trim_offsets", true}, {"use_regex", true}};
  const ordered_json file = {{"version", "1.0"},
                             {"truncation", nullptr},
                             {"padding", nullptr},
                             {"added_tokens", added},
                             {"normalizer", {{"type", "Sequence"}, {"normalizers", ordered_json::array()}}},
                             {"pre_tokenizer", pre_tokenizer()},
                             {"post_processor", nullptr},
                             {"decoder", byte_level},
                             {"model",
                              {{"type", "BPE"},
                               {"dropout", nullptr},
                               {"unk_token", nullptr},
                               {"continuing_subword_prefix", nullptr},
                               {"end_of_word_suffix", nullptr},
                               {"fuse_unk", false},
                               {"byte_fallback", false},
                               {"ignore_merges", false},
                               {"vocab", vocabulary},
                               {"merges", ordered_json::array()}}}};
  return file.dump(1) + "\n";
}

}  // namespace gannet::cli
