#include "checkpoint/synthetic_checkpoint.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "checkpoint/manifest.h"
#include "checkpoint/random_tensor.h"

namespace gannet {
namespace {

constexpr uint64_t kSeed = 1;
constexpr int64_t kAlignment = 64;
constexpr int64_t kPiece = int64_t{1} << 18;    // bytes that a thread makes at a time
constexpr int64_t kPattern = int64_t{1} << 24;  // bytes of a large table that are random; the rest repeats them

std::vector<int64_t> shifted(const std::vector<int64_t>& layers, int64_t first, int64_t count) {
  std::vector<int64_t> result;
  for (const int64_t layer : layers) {
    if (layer >= first && layer < first + count) result.push_back(layer - first);
  }
  return result;
}

int64_t padded(int64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

// Number of a routed expert, and where in the tensor's name it stands.
struct ExpertName {
  int64_t number = -1;
  size_t begin = 0;
  size_t end = 0;
};

ExpertName expert_of(const TensorSpec& spec) {
  if (spec.group != TensorGroup::routed_experts) return {};
  constexpr std::string_view kBefore = ".experts.";
  const size_t begin = spec.name.find(kBefore) + kBefore.size();
  const size_t end = spec.name.find('.', begin);
  return {std::stoll(spec.name.substr(begin, end - begin)), begin, end};
}

std::string with_expert(std::string name, const ExpertName& expert, int64_t number) {
  return name.replace(expert.begin, expert.end - expert.begin, std::to_string(number));
}

void copy(std::byte* to, const std::byte* from, int64_t bytes, ThreadPool& threads) {
  threads.parallel_for(bytes, kPiece,
                       [&](int64_t begin, int64_t end) { std::memcpy(to + begin, from + begin, end - begin); });
}

void make(const TensorSpec& spec, std::byte* to, ThreadPool& threads) {
  const RandomTensor tensor(spec, kSeed);
  // Repeating plain numbers is as good as new ones; codes must match their scales.
  const int64_t row = spec.bytes() / spec.shape[0];
  const int64_t random =
      spec.dtype == DType::bf16 ? std::min(spec.bytes(), std::max(row, kPattern / row * row)) : spec.bytes();
  threads.parallel_for(random, kPiece, [&](int64_t begin, int64_t end) {
    tensor.fill(begin, {to + begin, static_cast<size_t>(end - begin)});
  });
  for (int64_t at = random; at < spec.bytes(); at += random) {
    copy(to + at, to, std::min(random, spec.bytes() - at), threads);
  }
}

}  // namespace

Config some_layers(const Config& config, int64_t layers) {
  const bool all = layers == config.num_hidden_layers || config.kv_source_layer_ids.empty();
  const int64_t first = all ? 0 : config.kv_source_layer_ids.back();
  GANNET_CHECK(layers >= 1 && first + layers <= config.num_hidden_layers);
  Config part = config;
  part.num_hidden_layers = layers;
  part.compress_ratios.assign(config.compress_ratios.begin() + first, config.compress_ratios.begin() + first + layers);
  part.kv_source_layer_ids = shifted(config.kv_source_layer_ids, first, layers);
  part.index_source_layer_ids = shifted(config.index_source_layer_ids, first, layers);
  const auto candidates = shifted({config.candidate_source_layer_id}, first, layers);
  part.candidate_source_layer_id = candidates.empty() ? -1 : candidates.front();
  part.engram_layer_ids.clear();
  part.engram_num_embeddings.clear();
  part.num_nextn_predict_layers = 0;
  part.has_vision = false;
  return part;
}

int64_t synthetic_bytes(const Config& config, int64_t unique_experts) {
  int64_t bytes = 0;
  for (const auto& spec : manifest(config)) bytes += expert_of(spec).number < unique_experts ? padded(spec.bytes()) : 0;
  return bytes;
}

Checkpoint synthetic_checkpoint(const Config& config, int64_t unique_experts, ThreadPool& threads,
                                const std::function<void(int64_t, int64_t)>& progress) {
  const int64_t all = synthetic_bytes(config, unique_experts);
  std::shared_ptr<std::byte[]> memory(new std::byte[all + kAlignment]);
  std::byte* next = memory.get() + (kAlignment - reinterpret_cast<uintptr_t>(memory.get()) % kAlignment) % kAlignment;

  std::map<std::string, TensorView, std::less<>> tensors;
  int64_t done = 0;
  for (const auto& spec : manifest(config)) {
    const auto size = static_cast<size_t>(spec.bytes());
    const ExpertName expert = expert_of(spec);
    if (expert.number >= unique_experts) {
      const auto& shared = tensors.at(with_expert(spec.name, expert, expert.number % unique_experts));
      tensors[spec.name] = {spec.dtype, spec.shape, shared.bytes};
      continue;
    }
    if (expert.number > 0) {
      copy(next, tensors.at(with_expert(spec.name, expert, 0)).bytes.data(), spec.bytes(), threads);
    } else {
      make(spec, next, threads);
    }
    tensors[spec.name] = {spec.dtype, spec.shape, {next, size}};
    next += padded(spec.bytes());
    done += padded(spec.bytes());
    if (progress) progress(done, all);
  }
  return Checkpoint::in_memory(config, std::move(tensors), std::move(memory));
}

}  // namespace gannet
