#include <algorithm>
#include <vector>

#include "cache/record_layout.h"
#include "model/forward.h"
#include "ops/linear/kernels.h"

// What the ops of a pass must at least read and compute. Activations do not count: they stay in caches.
namespace gannet {
namespace {

double number(int64_t n) {
  return static_cast<double>(n);
}

}  // namespace

OpCost Model::Forward::product_cost(const ops::WeightMatrix& weight) const {
  if (rows_.rows() == 0) return {};
  const double operations = 2 * number(rows_.rows() * weight.rows * weight.cols);
  const bool exact_in_bf16 = weight.format != ops::WeightFormat::f32;
  return {.bytes = number(ops::weight_bytes(weight, weight.rows)),
          .operations = exact_in_bf16 ? operations : 0,
          .vector_operations = exact_in_bf16 ? 0 : operations};
}

OpCost Model::Forward::head_cost(int64_t rows) const {
  const ops::WeightMatrix& head = weights_.head();
  return {.bytes = number(ops::weight_bytes(head, head.rows)), .operations = 2 * number(rows * head.rows * head.cols)};
}

OpCost Model::Forward::mix_cost() const {
  if (rows_.rows() == 0) return {};
  const int64_t mixes = (2 + config_.hc_mult) * config_.hc_mult;
  const int64_t width = config_.hc_mult * config_.hidden_size;
  return {.bytes = 4 * number(mixes * width), .vector_operations = 2 * number(rows_.rows() * mixes * width)};
}

// Records that several rows of a sequence see count once.
OpCost Model::Forward::attention_cost(const LayerPlan& plan) const {
  const RecordLayout records = record_layout(config_);
  OpCost cost;
  for (const RowSet::Range& range : rows_.ranges) {
    int64_t most_entries = 0;
    for (int64_t position = range.start; position < range.start + range.rows; ++position) {
      const int64_t window = std::min(position + 1, config_.sliding_window);
      const int64_t entries = plan.ratio > 0 ? std::min((position + 1) / plan.ratio, config_.index_topk) : 0;
      cost.operations += 4 * number(config_.num_attention_heads * config_.head_dim * (window + entries));
      most_entries = std::max(most_entries, entries);
    }
    const int64_t window = std::min(range.start + range.rows, range.rows + config_.sliding_window - 1);
    cost.bytes += number(range.rows > 0 ? window * records.window_bytes + most_entries * records.entry_bytes : 0);
  }
  return cost;
}

OpCost Model::Forward::selection_cost(const LayerPlan& plan) const {
  const RecordLayout records = record_layout(config_);
  OpCost cost;
  for (const RowSet::Range& range : rows_.ranges) {
    int64_t keys = 0;
    for (int64_t position = range.start; position < range.start + range.rows; ++position) {
      keys = (position + 1) / plan.ratio;
      if (plan.restricted) keys = std::min(keys, config_.candidate_topk_blocks * config_.candidate_block_size);
      cost.operations += 2 * number(keys * config_.index_n_heads * config_.index_head_dim);
    }
    cost.bytes += number(keys * records.key_bytes);
  }
  return cost;
}

OpCost Model::Forward::experts_cost(const LayerWeights& weights) const {
  if (rows_.rows() == 0) return {};
  std::vector<bool> used(weights.experts.size());
  for (int64_t i = 0; i < rows_.rows() * config_.num_experts_per_tok; ++i) used[work_.experts[i]] = true;
  const auto bytes = [](const ops::ExpertWeights& e) {
    return number(ops::weight_bytes(e.w1, e.w1.rows) + ops::weight_bytes(e.w2, e.w2.rows) +
                  ops::weight_bytes(e.w3, e.w3.rows));
  };
  OpCost cost{.bytes = bytes(weights.shared)};
  for (size_t e = 0; e < used.size(); ++e) {
    if (!used[e]) continue;
    cost.bytes += bytes(weights.experts[e]);
    ++cost.experts;
  }
  const int64_t slots = rows_.rows() * (1 + config_.num_experts_per_tok);
  cost.operations = 6 * number(slots * config_.hidden_size * config_.moe_intermediate_size);
  return cost;
}

}  // namespace gannet
