#include "model/forward.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "base/quantize.h"
#include "model/rope_table.h"
#include "ops/attention_output/op.h"
#include "ops/embed/op.h"
#include "ops/engram/op.h"
#include "ops/experts/op.h"
#include "ops/head/op.h"
#include "ops/hyper_apply/op.h"
#include "ops/hyper_mix/op.h"
#include "ops/index_candidates/op.h"
#include "ops/index_scores/op.h"
#include "ops/kv_insert/op.h"
#include "ops/rms_norm/op.h"
#include "ops/rope/op.h"
#include "ops/router/op.h"
#include "ops/top_k/op.h"

namespace gannet {
namespace {

// Rows scored against all entries at a time: bounds the score buffer, which grows with the context.
constexpr int64_t kScoreRows = 16;

void find_all_rows(const Batch& batch, RowSet& set) {
  set.clear();
  for (const SequenceRows& sequence : batch.sequences) {
    GANNET_CHECK(sequence.first_row == set.rows());
    const int64_t start = sequence.state->length();
    for (int64_t i = 0; i < sequence.rows; ++i) {
      set.batch_row.push_back(static_cast<int32_t>(set.rows()));
      set.positions.push_back(static_cast<int32_t>(start + i));
      set.sequence_of.push_back(static_cast<int32_t>(set.ranges.size()));
    }
    set.ranges.push_back({sequence.state, sequence.first_row, sequence.rows, start});
  }
}

// Those at or behind their sequence's decoder_from().
void find_kept_rows(const RowSet& all, RowSet& kept) {
  kept.clear();
  for (const RowSet::Range& range : all.ranges) {
    const int64_t dropped = std::clamp<int64_t>(range.state->decoder_from() - range.start, 0, range.rows);
    const int64_t first = range.first_row + dropped;
    RowSet::Range rest{range.state, kept.rows(), range.rows - dropped, range.start + dropped};
    for (int64_t r = first; r < range.first_row + range.rows; ++r) {
      kept.batch_row.push_back(all.batch_row[r]);
      kept.positions.push_back(all.positions[r]);
      kept.sequence_of.push_back(static_cast<int32_t>(kept.ranges.size()));
    }
    kept.ranges.push_back(rest);
  }
}

// Moves the rows named by `from` (rising) to the front of a buffer of `width` floats a row.
void compact(std::vector<float>& buffer, int64_t width, const std::vector<int32_t>& from) {
  for (size_t r = 0; r < from.size(); ++r) {
    if (from[r] != static_cast<int32_t>(r)) std::copy_n(&buffer[from[r] * width], width, &buffer[r * width]);
  }
}

}  // namespace

Workspace::Workspace(const Config& c, int64_t rows, int64_t max_tokens)
    : streams(rows * c.hc_mult * c.hidden_size),
      pre(rows * c.hc_mult),
      post(rows * c.hc_mult),
      mix(rows * c.hc_mult * c.hc_mult),
      x(rows * c.hidden_size),
      operand(rows * c.hidden_size),
      y(rows * c.hidden_size),
      query_latent(rows * c.q_lora_rank),
      q(rows * c.num_attention_heads * c.head_dim),
      heads(rows * c.num_attention_heads * c.head_dim),
      kv(rows * c.head_dim),
      gate(rows * c.head_dim),
      window_records(rows * q8_bytes(c.head_dim)),
      index_q(rows * c.index_n_heads * c.index_head_dim),
      index_weights(rows * c.index_n_heads),
      visible(rows),
      selected(rows * c.index_topk),
      selected_counts(rows),
      candidate_counts(rows),
      experts(rows * c.num_experts_per_tok),
      expert_weights(rows * c.num_experts_per_tok) {
  int64_t most_entries = 0;
  for (const int64_t layer : c.kv_source_layer_ids) {
    most_entries = std::max(most_entries, max_tokens / c.compress_ratios[layer]);
  }
  if (c.candidate_source_layer_id >= 0) {
    candidate_stride = std::min(c.candidate_topk_blocks * c.candidate_block_size, most_entries);
  }
  score_stride = std::max(most_entries, candidate_stride);
  scores.resize(std::min(rows, kScoreRows) * score_stride);
  candidates.resize(rows * candidate_stride);
}

Model::Forward::Forward(const Checkpoint& checkpoint, const Device& device, const ModelOptions& options,
                        std::optional<EngramHash> hash)
    : config_(checkpoint.config()),
      device_(device),
      plan_(plan_layers(config_)),
      weights_(checkpoint),
      hash_(std::move(hash)),
      activations_(options.activations),
      quantize_(options.quantize_activations),
      max_rows_(options.max_rows),
      norm_eps_(static_cast<float>(config_.rms_norm_eps)),
      local_frequencies_(rope_table(config_, RopeTable::local)),
      compressed_frequencies_(rope_table(config_, RopeTable::compressed)),
      work_(config_, options.max_rows, options.max_tokens > 0 ? options.max_tokens : config_.max_position_embeddings) {
  if (hash_) work_.engram_rows.resize(config_.engram_layer_ids.size() * max_rows_ * hash_->columns());
}

void Model::Forward::save_windows(SequenceState& state, std::byte* to) {
  std::memcpy(to, state.windows(), state.window_bytes());
}

void Model::Forward::restore_windows(SequenceState& state, const std::byte* from) {
  std::memcpy(state.windows(), from, state.window_bytes());
}

void Model::Forward::forward(const Batch& batch, float* logits, LayerObserver* observer, RowCandidates*) {
  GANNET_CHECK(batch.candidates_only.empty());
  GANNET_CHECK(batch.rows() <= max_rows_);
  if (batch.rows() == 0) return;
  last_end_ = std::chrono::steady_clock::now();
  find_all_rows(batch, rows_);
  hash_ngrams(batch);
  embed(batch);
  for (int64_t n = 0; n < config_.num_hidden_layers; ++n) {
    if (observer != nullptr) observer->layer_in(n, rows_.positions, work_.streams.data(), work_.pre.data());
    layer(n);
    if (observer != nullptr) observer->layer_out(n, rows_.positions, work_.streams.data(), work_.pre.data());
  }
  head(batch, logits);
  for (const SequenceRows& sequence : batch.sequences) sequence.state->advance(sequence.rows);
}

void Model::Forward::layer(int64_t n) {
  const LayerWeights& weights = weights_.layer(n);
  if (plan_.layers[n].engram >= 0) add_engram(n);
  if (plan_.layers[n].role == LayerRole::full) publish(n);
  if (n == plan_.seam) cut_rows();

  mix_streams(weights.attention_site);
  attention(n);
  apply(work_.y.data(), weights.ffn_norm);

  mix_streams(weights.ffn_site);
  experts(n);
  const bool last = n + 1 == config_.num_hidden_layers;
  apply(work_.y.data(), last ? nullptr : weights_.layer(n + 1).attention_norm);
}

void Model::Forward::embed(const Batch& batch) {
  ops::embed(device_, {.ids = batch.ids.data(),
                       .rows = batch.rows(),
                       .weight = weights_.embedding(),
                       .hidden = config_.hidden_size,
                       .streams_per_row = config_.hc_mult,
                       .streams = work_.streams.data(),
                       .pre = work_.pre.data()});
  ended("embed");
  apply(nullptr, weights_.layer(0).attention_norm);
}

std::vector<int32_t> Model::Forward::history(std::span<const int32_t> ids) const {
  return hash_ ? hash_->history(ids) : std::vector<int32_t>();
}

void Model::Forward::hash_ngrams(const Batch& batch) {
  if (!hash_) return;
  for (const SequenceRows& sequence : batch.sequences) {
    std::vector<int32_t>& history = sequence.state->history();
    for (int64_t r = sequence.first_row; r < sequence.first_row + sequence.rows; ++r) {
      const int32_t current = hash_->compressed(batch.ids[r]);
      for (size_t e = 0; e < config_.engram_layer_ids.size(); ++e) {
        const auto engram = static_cast<int64_t>(e);
        hash_->rows(engram, current, history, &work_.engram_rows[(engram * max_rows_ + r) * hash_->columns()]);
      }
      hash_->advance(current, history);
    }
  }
}

void Model::Forward::add_engram(int64_t n) {
  const EngramWeights& weights = *weights_.layer(n).engram;
  // Behind the seam only kept rows are left; their table rows move to the front.
  const int64_t columns = hash_->columns();
  int64_t* table_rows = &work_.engram_rows[plan_.layers[n].engram * max_rows_ * columns];
  for (int64_t r = 0; r < rows_.rows(); ++r) {
    std::copy_n(table_rows + rows_.batch_row[r] * columns, columns, table_rows + r * columns);
  }
  ops::engram(device_, {.table_rows = table_rows,
                        .rows = rows_.rows(),
                        .columns = columns,
                        .table = weights.table,
                        .table_scale = weights.table_scale,
                        .dim = config_.engram_head_dim,
                        .wkv = weights.wkv,
                        .q_weight = weights.q_weight,
                        .k_weight = weights.k_weight,
                        .norm_eps = norm_eps_,
                        .streams = work_.streams.data(),
                        .streams_per_row = config_.hc_mult,
                        .hidden = config_.hidden_size,
                        .quantize_input = quantize_,
                        .activations = activations_});
  ended("engram", [&] { return product_cost(weights.wkv); });
  apply(nullptr, weights_.layer(n).attention_norm);
}

void Model::Forward::publish(int64_t n) {
  const LayerPlan& plan = plan_.layers[n];
  const CompressorWeights& weights = *weights_.layer(n).compressor;
  linear("compressor", work_.operand, weights.wkv, work_.kv, false);
  if (weights.wgate) linear("compressor", work_.operand, *weights.wgate, work_.gate, false);

  insert_sequences_.clear();
  for (const RowSet::Range& range : rows_.ranges) {
    const int64_t replayed = std::clamp<int64_t>(range.state->cached() - range.start, 0, range.rows);
    insert_sequences_.push_back({.first_row = range.first_row + replayed,
                                 .rows = range.rows - replayed,
                                 .start = range.start + replayed,
                                 .pending = range.state->pending(plan.kv_source),
                                 .entries = range.state->entries(plan.kv_source),
                                 .keys = range.state->keys(plan.kv_source)});
  }
  ops::insert_global(device_, {.a = work_.kv.data(),
                               .gate = weights.wgate ? work_.gate.data() : nullptr,
                               .ratio = plan.ratio,
                               .head_dim = config_.head_dim,
                               .index_dim = config_.index_head_dim,
                               .sequences = insert_sequences_.data(),
                               .sequence_count = std::ssize(insert_sequences_),
                               .norm = weights.norm,
                               .index_key = weights.index_key,
                               .index_norm = weights.index_norm,
                               .norm_eps = norm_eps_,
                               .frequencies = &compressed_frequencies_,
                               .activations = activations_});
  ended("kv entries", [&] { return product_cost(weights.index_key); });
}

void Model::Forward::cut_rows() {
  find_kept_rows(rows_, kept_);
  if (kept_.rows() == rows_.rows()) return;
  compact(work_.streams, config_.hc_mult * config_.hidden_size, kept_.batch_row);
  compact(work_.pre, config_.hc_mult, kept_.batch_row);
  compact(work_.x, config_.hidden_size, kept_.batch_row);
  compact(work_.operand, config_.hidden_size, kept_.batch_row);
  std::swap(rows_, kept_);
}

const std::vector<float>& Model::Forward::frequencies(const LayerPlan& plan) const {
  return plan.ratio > 0 ? compressed_frequencies_ : local_frequencies_;
}

void Model::Forward::project(int64_t n) {
  const LayerWeights& weights = weights_.layer(n);
  project_both(weights);
  ops::rms_norm(device_, {.x = work_.query_latent.data(),
                          .y = work_.query_latent.data(),
                          .stride = config_.q_lora_rank,
                          .rows = rows_.rows(),
                          .size = config_.q_lora_rank,
                          .weight = weights.q_norm,
                          .eps = norm_eps_,
                          .activations = Activations::fp32});
  ended("query norm");
  linear("wq_b", work_.query_latent, weights.wq_b, work_.q, quantize_);
  ops::insert_window(device_, {.kv = work_.kv.data(),
                               .positions = rows_.positions.data(),
                               .rows = rows_.rows(),
                               .head_dim = config_.head_dim,
                               .norm = weights.kv_norm,
                               .norm_eps = norm_eps_,
                               .frequencies = &frequencies(plan_.layers[n]),
                               .records = work_.window_records.data()});
  ended("window record");
}

void Model::Forward::project_both(const LayerWeights& weights) {
  const ops::LinearParams products[] = {product(work_.x, weights.wq_a, work_.query_latent, quantize_),
                                        product(work_.x, weights.wkv, work_.kv, quantize_)};
  ops::linear(device_, products);
  ended("wq_a, wkv", [&] {
    OpCost cost = product_cost(weights.wq_a);
    cost += product_cost(weights.wkv);
    return cost;
  });
}

void Model::Forward::attend(int64_t n) {
  const LayerPlan& plan = plan_.layers[n];
  attention_sequences_.clear();
  for (const RowSet::Range& range : rows_.ranges) {
    attention_sequences_.push_back(
        {.ring = range.state->ring(n),
         .chunk = work_.window_records.data() + range.first_row * q8_bytes(config_.head_dim),
         .chunk_start = range.start,
         .window_from = plan.decoder ? range.state->decoder_from() : range.state->encoder_from(),
         .entries = plan.ratio > 0 ? range.state->entries(plan.kv_source) : ops::PagedRecords{}});
  }
  ops::attention(device_, {.q = work_.q.data(),
                           .positions = rows_.positions.data(),
                           .sequence_of = rows_.sequence_of.data(),
                           .rows = rows_.rows(),
                           .heads = config_.num_attention_heads,
                           .head_dim = config_.head_dim,
                           .window = config_.sliding_window,
                           .sequences = attention_sequences_.data(),
                           .selected = plan.ratio > 0 ? work_.selected.data() : nullptr,
                           .selected_counts = work_.selected_counts.data(),
                           .selected_stride = config_.index_topk,
                           .sink = weights_.layer(n).sink,
                           .frequencies = &frequencies(plan),
                           .out = work_.heads.data(),
                           .activations = activations_});
  keep_windows(n);
  ended(plan.ratio > 0 ? "attention" : "attention, window only", [&] { return attention_cost(plan); });
}

void Model::Forward::attention(int64_t n) {
  const LayerWeights& weights = weights_.layer(n);
  project(n);
  if (weights.indexer) select_entries(n);
  attend(n);
  ops::attention_output(device_, {.heads = work_.heads.data(),
                                  .rows = rows_.rows(),
                                  .groups = config_.o_groups,
                                  .wo_a = weights.wo_a,
                                  .wo_b = weights.wo_b,
                                  .y = work_.y.data(),
                                  .quantize_input = quantize_,
                                  .activations = activations_});
  ended("attention output", [&] {
    const OpCost a = product_cost(weights.wo_a);
    const OpCost b = product_cost(weights.wo_b);
    return OpCost{.bytes = a.bytes + b.bytes, .operations = a.operations + b.operations};
  });
}

void Model::Forward::keep_windows(int64_t n) {
  const int64_t bytes = q8_bytes(config_.head_dim);
  for (const RowSet::Range& range : rows_.ranges) {
    std::byte* ring = range.state->ring(n);
    for (int64_t i = std::max<int64_t>(0, range.rows - config_.sliding_window); i < range.rows; ++i) {
      const int64_t slot = (range.start + i) % config_.sliding_window;
      std::memcpy(ring + slot * bytes, work_.window_records.data() + (range.first_row + i) * bytes, bytes);
    }
  }
}

void Model::Forward::select_entries(int64_t n) {
  const IndexerWeights& weights = *weights_.layer(n).indexer;
  for (int64_t r = 0; r < rows_.rows(); ++r) {
    work_.visible[r] = static_cast<int32_t>((rows_.positions[r] + 1) / plan_.layers[n].ratio);
  }
  linear("index query", work_.query_latent, weights.wq_b, work_.index_q, quantize_);
  linear("index weights", work_.operand, weights.weights_proj, work_.index_weights, false);
  const auto dim = static_cast<float>(config_.index_head_dim);
  const auto heads = static_cast<float>(config_.index_n_heads);
  const float scale = 1.0F / (std::sqrt(dim) * std::sqrt(heads));
  for (int64_t i = 0; i < rows_.rows() * config_.index_n_heads; ++i) work_.index_weights[i] *= scale;

  for (int64_t begin = 0; begin < rows_.rows(); begin += kScoreRows) {
    const int64_t end = std::min(begin + kScoreRows, rows_.rows());
    if (!select_all(n, begin, end)) select_tile(n, begin, end);
  }
  ended(plan_.layers[n].restricted ? "index select, candidates" : "index select",
        [&] { return selection_cost(plan_.layers[n]); });
}

// Rows that can see no more than they may select need no scores: true when that holds for all of the tile.
bool Model::Forward::select_all(int64_t n, int64_t begin, int64_t end) {
  const LayerPlan& plan = plan_.layers[n];
  const auto& counts = plan.restricted ? work_.candidate_counts : work_.visible;
  const bool few = std::all_of(counts.begin() + begin, counts.begin() + end,
                               [&](int32_t count) { return count <= config_.index_topk; });
  const bool candidates_hold_all =
      std::all_of(work_.visible.begin() + begin, work_.visible.begin() + end,
                  [&](int32_t v) { return v <= config_.candidate_topk_blocks * config_.candidate_block_size; });
  if (!few || (plan.makes_candidates && !candidates_hold_all)) return false;
  for (int64_t r = begin; r < end; ++r) {
    int32_t* selected = &work_.selected[r * config_.index_topk];
    for (int32_t i = 0; i < counts[r]; ++i) {
      selected[i] = plan.restricted ? work_.candidates[r * work_.candidate_stride + i] : i;
    }
    work_.selected_counts[r] = counts[r];
    if (!plan.makes_candidates) continue;
    std::copy_n(selected, counts[r], &work_.candidates[r * work_.candidate_stride]);
    work_.candidate_counts[r] = counts[r];
  }
  return true;
}

void Model::Forward::select_tile(int64_t n, int64_t begin, int64_t end) {
  const LayerPlan& plan = plan_.layers[n];
  index_keys_.clear();
  for (int64_t r = begin; r < end; ++r) {
    index_keys_.push_back(rows_.ranges[rows_.sequence_of[r]].state->keys(plan.kv_source));
  }
  const int64_t stride = plan.restricted ? work_.candidate_stride : work_.score_stride;
  const int32_t* entries = plan.restricted ? &work_.candidates[begin * stride] : nullptr;
  const int32_t* counts = plan.restricted ? &work_.candidate_counts[begin] : &work_.visible[begin];
  ops::index_scores(device_, {.q = &work_.index_q[begin * config_.index_n_heads * config_.index_head_dim],
                              .weights = &work_.index_weights[begin * config_.index_n_heads],
                              .positions = &rows_.positions[begin],
                              .rows = end - begin,
                              .heads = config_.index_n_heads,
                              .dim = config_.index_head_dim,
                              .frequencies = &compressed_frequencies_,
                              .keys = index_keys_.data(),
                              .visible = counts,
                              .entries = entries,
                              .scores = work_.scores.data(),
                              .stride = stride});
  if (plan.makes_candidates) {
    ops::index_candidates(device_, {.scores = work_.scores.data(),
                                    .score_stride = stride,
                                    .visible = counts,
                                    .rows = end - begin,
                                    .block_size = config_.candidate_block_size,
                                    .max_blocks = config_.candidate_topk_blocks,
                                    .entries = &work_.candidates[begin * work_.candidate_stride],
                                    .entry_stride = work_.candidate_stride,
                                    .counts = &work_.candidate_counts[begin]});
  }
  ops::top_k(device_, {.scores = work_.scores.data(),
                       .stride = stride,
                       .counts = counts,
                       .entries = entries,
                       .rows = end - begin,
                       .k = config_.index_topk,
                       .selected = &work_.selected[begin * config_.index_topk],
                       .selected_stride = config_.index_topk,
                       .selected_counts = &work_.selected_counts[begin]});
}

void Model::Forward::experts(int64_t n) {
  const LayerWeights& weights = weights_.layer(n);
  ops::router(device_, {.x = work_.operand.data(),
                        .rows = rows_.rows(),
                        .gate = weights.gate,
                        .bias = weights.gate_bias,
                        .top_k = config_.num_experts_per_tok,
                        .scaling_factor = static_cast<float>(config_.routed_scaling_factor),
                        .experts = work_.experts.data(),
                        .weights = work_.expert_weights.data()});
  ended("router", [&] { return product_cost(weights.gate); });
  ops::experts(device_, {.x = work_.x.data(),
                         .x_stride = config_.hidden_size,
                         .rows = rows_.rows(),
                         .experts = work_.experts.data(),
                         .weights = work_.expert_weights.data(),
                         .top_k = config_.num_experts_per_tok,
                         .routed = weights.experts.data(),
                         .routed_count = config_.n_routed_experts,
                         .shared = weights.shared,
                         .swiglu_limit = static_cast<float>(config_.swiglu_limit),
                         .quantize_input = quantize_,
                         .activations = activations_,
                         .y = work_.y.data(),
                         .y_stride = config_.hidden_size});
  ended("experts", [&] { return experts_cost(weights); });
}

void Model::Forward::mix_streams(const HyperSite& site) {
  ops::hyper_mix(device_, {.streams = work_.streams.data(),
                           .rows = rows_.rows(),
                           .streams_per_row = config_.hc_mult,
                           .hidden = config_.hidden_size,
                           .fn = site.fn,
                           .base = site.base,
                           .scale = site.scale,
                           .sinkhorn_iterations = config_.hc_sinkhorn_iters,
                           .norm_eps = norm_eps_,
                           .eps = static_cast<float>(config_.hc_eps),
                           .pre = work_.pre.data(),
                           .post = work_.post.data(),
                           .mix = work_.mix.data()});
  ended("hyper mix", [&] { return mix_cost(); });
}

void Model::Forward::apply(const float* y, const uint16_t* norm) {
  ops::hyper_apply(device_, {.streams = work_.streams.data(),
                             .rows = rows_.rows(),
                             .streams_per_row = config_.hc_mult,
                             .hidden = config_.hidden_size,
                             .y = y,
                             .post = work_.post.data(),
                             .mix = work_.mix.data(),
                             .pre = work_.pre.data(),
                             .norm = norm,
                             .norm_eps = norm_eps_,
                             .x = work_.x.data(),
                             .operand = work_.operand.data(),
                             .activations = activations_});
  ended("hyper apply");
}

void Model::Forward::head(const Batch& batch, float* logits) {
  if (batch.logit_rows.empty()) return;
  // The wanted rows move to the front; nothing behind the last layer needs the others.
  std::vector<int32_t>& from = head_rows_;
  from.clear();
  for (int64_t r = 0; r < rows_.rows(); ++r) {
    if (std::binary_search(batch.logit_rows.begin(), batch.logit_rows.end(), rows_.batch_row[r])) {
      from.push_back(static_cast<int32_t>(r));
    }
  }
  GANNET_CHECK(from.size() == batch.logit_rows.size());
  compact(work_.streams, config_.hc_mult * config_.hidden_size, from);
  compact(work_.pre, config_.hc_mult, from);
  ops::head(device_, {.streams = work_.streams.data(),
                      .pre = work_.pre.data(),
                      .rows = static_cast<int64_t>(from.size()),
                      .streams_per_row = config_.hc_mult,
                      .hidden = config_.hidden_size,
                      .norm = weights_.norm(),
                      .norm_eps = norm_eps_,
                      .weight = weights_.head(),
                      .logits = logits,
                      .activations = activations_});
  ended("head", [&] { return head_cost(std::ssize(from)); });
}

ops::LinearParams Model::Forward::product(const std::vector<float>& x, const ops::WeightMatrix& weight,
                                          std::vector<float>& y, bool quantize) const {
  return {.x = x.data(),
          .x_stride = weight.cols,
          .rows = rows_.rows(),
          .weight = weight,
          .outputs = weight.rows,
          .y = y.data(),
          .y_stride = weight.rows,
          .quantize_input = quantize,
          .activations = Activations::fp32};
}

void Model::Forward::linear(const char* op, const std::vector<float>& x, const ops::WeightMatrix& weight,
                            std::vector<float>& y, bool quantize) {
  ops::linear(device_, product(x, weight, y, quantize));
  ended(op, [&] { return product_cost(weight); });
}

}  // namespace gannet
