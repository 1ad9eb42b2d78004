#include "model/cuda/forward.h"

#include <algorithm>

#include "base/quantize.h"
#include "model/cuda/geometry.h"
#include "model/cuda/memory_plan.h"
#include "model/model.h"
#include "model/rope_table.h"
#include "ops/attention/sm90.h"
#include "ops/cuda/check.h"
#include "ops/embed/sm90.h"
#include "ops/engram/sm90.h"
#include "ops/experts/sm90.h"
#include "ops/head/sm90.h"
#include "ops/head/sm90_candidates.h"
#include "ops/hyper_apply/sm90.h"
#include "ops/hyper_mix/sm90.h"
#include "ops/index_scores/sm90.h"
#include "ops/kv_insert/sm90.h"

namespace gannet {

using ops::cuda::LinearOutput;
using ops::cuda::PackedMatrix;

namespace {

// Up to that many rows the coefficients of a site are computed beside its sublayer; with more they fill the GPU.
constexpr int64_t kSideRows = 64;

// Numbers of rows that graphs are captured for.
std::vector<int64_t> ladder(int64_t max_rows) {
  std::vector<int64_t> steps;
  for (int64_t step = 1; step < max_rows; step *= 2) {
    steps.push_back(step);
    if (step >= 16 && step / 2 * 3 < max_rows) steps.push_back(step / 2 * 3);
  }
  steps.push_back(max_rows);
  return steps;
}

}  // namespace

CudaForward::CudaForward(const TensorSource& source, const BlockPool& pool, const CudaForwardOptions& options,
                         std::optional<EngramHash> hash, const std::function<void(int64_t, int64_t)>& progress)
    : config_(source.config()),
      options_(options),
      plan_(plan_layers(config_)),
      hash_(std::move(hash)),
      weights_(source, plan_, progress),
      cache_(config_, pool, options.max_sequences, options.max_tokens),
      batch_(config_, options.max_rows, options.max_sequences, hash_,
             [&] {
               std::vector<int64_t> rows;
               for (size_t e = 0; e < config_.engram_layer_ids.size(); ++e) {
                 rows.push_back(source.table_rows(static_cast<int64_t>(e)));
               }
               return rows;
             }()),
      work_(config_, options.max_rows),
      norm_eps_(static_cast<float>(config_.rms_norm_eps)),
      candidates_(options.max_rows * static_cast<int64_t>(sizeof(RowCandidates))),
      ladder_(ladder(options.max_rows)) {
  const auto upload = [&](const std::vector<float>& values) {
    auto* device = tables_.get<float>(std::ssize(values));
    GANNET_CUDA_CHECK(cudaMemcpy(device, values.data(), values.size() * sizeof(float), cudaMemcpyHostToDevice));
    return device;
  };
  local_frequencies_ = upload(rope_table(config_, RopeTable::local));
  compressed_frequencies_ = upload(rope_table(config_, RopeTable::compressed));
  for (cudaStream_t* stream : {&stream_, &mix_stream_, &engram_stream_}) {
    GANNET_CUDA_CHECK(cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking));
  }
  gathered_.resize(config_.engram_layer_ids.size());
  for (cudaEvent_t& event : gathered_) {
    GANNET_CUDA_CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  }
  for (cudaEvent_t* event : {&forked_, &mixed_}) {
    GANNET_CUDA_CHECK(cudaEventCreateWithFlags(event, cudaEventDisableTiming));
  }
  if (options_.graphs) capture_ladder();
  GANNET_CUDA_CHECK(cudaDeviceSynchronize());
}

CudaForward::~CudaForward() {
  cudaDeviceSynchronize();
  for (const auto& [key, graph] : graphs_) cudaGraphExecDestroy(graph);
  for (const cudaEvent_t event : gathered_) cudaEventDestroy(event);
  for (const cudaEvent_t event : {forked_, mixed_}) cudaEventDestroy(event);
  for (const cudaStream_t stream : {stream_, mix_stream_, engram_stream_}) cudaStreamDestroy(stream);
}

std::string CudaForward::memory_text() const {
  const CudaMemoryPlan plan{.weights = weights_.device_bytes(),
                            .cache = cache_.device_bytes(),
                            .buffers = work_.arena.bytes(),
                            .host_tables = weights_.host_bytes()};
  return fmt::format("{}. {} blocks of {} tokens, {} sequences, {} rows a pass, {} graphs", plan.text(),
                     cache_.block_count(), cache_.block_tokens(), cache_.slots(), options_.max_rows, graphs_.size());
}

std::vector<int32_t> CudaForward::history(std::span<const int32_t> ids) const {
  return hash_ ? hash_->history(ids) : std::vector<int32_t>();
}

void CudaForward::pin(std::span<float> memory) {
  GANNET_CUDA_CHECK(cudaHostRegister(memory.data(), memory.size_bytes(), cudaHostRegisterDefault));
}

void CudaForward::unpin(std::span<float> memory) {
  cudaHostUnregister(memory.data());
}

void CudaForward::save_windows(SequenceState& state, std::byte* to) {
  GANNET_CUDA_CHECK(cudaMemcpyAsync(to, cache_.rings() + state.slot() * cache_.slot_bytes(),
                                    static_cast<size_t>(cache_.slot_bytes()), cudaMemcpyDeviceToHost, stream_));
  GANNET_CUDA_CHECK(cudaStreamSynchronize(stream_));
}

void CudaForward::restore_windows(SequenceState& state, const std::byte* from) {
  GANNET_CUDA_CHECK(cudaMemcpyAsync(cache_.rings() + state.slot() * cache_.slot_bytes(), from,
                                    static_cast<size_t>(cache_.slot_bytes()), cudaMemcpyHostToDevice, stream_));
}

void CudaForward::forward(const Batch& batch, float* logits, LayerObserver* observer, RowCandidates* candidates) {
  if (batch.rows() == 0) return;
  run(batch, observer);
  enqueue_head(batch, logits);
  GANNET_CUDA_CHECK(cudaStreamSynchronize(stream_));
  constexpr int64_t kCount = RowCandidates::kCount;
  const auto* values = reinterpret_cast<const float*>(candidates_.data());
  const auto* ids = reinterpret_cast<const int32_t*>(values + options_.max_rows * kCount);
  for (size_t i = 0; i < batch.candidates_only.size(); ++i) {
    if (batch.candidates_only[i] == 0) continue;
    std::copy_n(values + i * kCount, kCount, candidates[i].logits.begin());
    std::copy_n(ids + i * kCount, kCount, candidates[i].ids.begin());
  }
  for (const SequenceRows& sequence : batch.sequences) sequence.state->advance(sequence.rows);
}

void CudaForward::enqueue(const Batch& batch) {
  run(batch, nullptr);
  enqueue_head(batch, nullptr);
}

void CudaForward::run(const Batch& batch, LayerObserver* observer) {
  for (const SequenceRows& sequence : batch.sequences) {
    cache_.update_table(stream_, *sequence.state, sequence.state->length() + sequence.rows);
  }
  batch_.fill(stream_, batch);
  if (batch_.kept_rows() == batch_.rows()) {
    launch(Part::full, batch_.rows(), observer);
    return;
  }
  launch(Part::encoder, batch_.rows(), observer);
  if (batch_.kept_rows() > 0) launch(Part::decoder, batch_.kept_rows(), observer);
}

void CudaForward::launch(Part part, int64_t rows, LayerObserver* observer) {
  const int64_t most = *std::lower_bound(ladder_.begin(), ladder_.end(), rows);
  if (const auto graph = graphs_.find({part, most}); graph != graphs_.end() && observer == nullptr && !timed_) {
    GANNET_CUDA_CHECK(cudaGraphLaunch(graph->second, stream_));
    return;
  }
  if (part != Part::decoder) run_encoder(most, observer);
  if (part != Part::encoder) run_decoder(most, part == Part::decoder, observer);
}

void CudaForward::capture_ladder() {
  for (auto most = ladder_.rbegin(); most != ladder_.rend(); ++most) {
    for (const Part part : {Part::encoder, Part::decoder, Part::full}) graphs_[{part, *most}] = capture(part, *most);
  }
}

cudaGraphExec_t CudaForward::capture(Part part, int64_t most) {
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  GANNET_CUDA_CHECK(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal));
  if (part != Part::decoder) run_encoder(most, nullptr);
  if (part != Part::encoder) run_decoder(most, part == Part::decoder, nullptr);
  GANNET_CUDA_CHECK(cudaStreamEndCapture(stream_, &graph));
  GANNET_CUDA_CHECK(cudaGraphInstantiate(&exec, graph, 0));
  GANNET_CUDA_CHECK(cudaGraphDestroy(graph));
  GANNET_CUDA_CHECK(cudaGraphUpload(exec, stream_));
  return exec;
}

void CudaForward::run_encoder(int64_t most, LayerObserver* observer) {
  current_ = {.rows = batch_.encoder_rows(most), .activations = &work_.all};
  gather_engram();
  embed();
  for (int64_t n = 0; n < plan_.seam; ++n) {
    observe(observer, n, false);
    begin_layer(n);
    finish_layer(n);
    observe(observer, n, true);
  }
  if (plan_.seam > 0) keep_windows(0, plan_.seam);
  if (plan_.seam == config_.num_hidden_layers) return;
  observe(observer, plan_.seam, false);
  begin_layer(plan_.seam);
}

void CudaForward::run_decoder(int64_t most, bool cut, LayerObserver* observer) {
  current_ = {.rows = batch_.decoder_rows(most), .activations = cut ? &work_.kept : &work_.all};
  if (cut) cut_rows();
  for (int64_t n = plan_.seam; n < config_.num_hidden_layers; ++n) {
    if (n > plan_.seam) {
      observe(observer, n, false);
      begin_layer(n);
    }
    finish_layer(n);
    observe(observer, n, true);
  }
  const int64_t layers = config_.num_hidden_layers - plan_.seam;
  if (layers > 0) keep_windows(plan_.seam, layers);
}

void CudaForward::begin_layer(int64_t n) {
  if (plan_.layers[n].engram >= 0) add_engram(n);
  if (plan_.layers[n].role == LayerRole::full) publish(n);
}

void CudaForward::finish_layer(int64_t n) {
  const CudaLayerWeights& weights = weights_.layer(n);
  mix_streams(weights.attention_site);
  attention(n);
  apply(weights.ffn_norm, true, false);

  mix_streams(weights.ffn_site);
  experts(n);
  const bool last = n + 1 == config_.num_hidden_layers;
  apply(last ? nullptr : weights_.layer(n + 1).attention_norm, false, true);
}

void CudaForward::embed() {
  op("embed", stream_cost(1, 2.0 * static_cast<double>(config_.hidden_size)), [&] {
    ops::cuda::embed(stream_, {.ids = batch_.ids(),
                               .count = current_.rows.count,
                               .most = current_.rows.most,
                               .weight = weights_.embedding(),
                               .hidden = config_.hidden_size,
                               .streams = current_.activations->streams,
                               .pre = current_.activations->pre});
  });
  apply(weights_.layer(0).attention_norm, false, false);
}

// The ids are known: all tables are read beside the first layers.
void CudaForward::gather_engram() {
  if (gathered_.empty()) return;
  GANNET_CUDA_CHECK(cudaEventRecord(forked_, stream_));
  GANNET_CUDA_CHECK(cudaStreamWaitEvent(engram_stream_, forked_));
  for (size_t e = 0; e < gathered_.size(); ++e) {
    const CudaEngramWeights& weights = *weights_.layer(config_.engram_layer_ids[e]).engram;
    ops::cuda::engram_gather(engram_stream_, {.table_rows = batch_.table_rows(static_cast<int64_t>(e)),
                                              .count = current_.rows.count,
                                              .most = current_.rows.most,
                                              .columns = hash_->columns(),
                                              .table = weights.table,
                                              .table_scale = weights.table_scale,
                                              .dim = config_.engram_head_dim,
                                              .half_of_device = true,
                                              .out = work_.engram_rows[e]});
    GANNET_CUDA_CHECK(cudaEventRecord(gathered_[e], engram_stream_));
  }
}

void CudaForward::add_engram(int64_t n) {
  const CudaEngramWeights& weights = *weights_.layer(n).engram;
  const int64_t engram = plan_.layers[n].engram;
  GANNET_CUDA_CHECK(cudaStreamWaitEvent(stream_, gathered_[engram]));
  linear("engram wkv", work_.engram_rows[engram], weights.wkv, LinearOutput::f32, work_.engram_kv);
  op("engram gate", stream_cost(2, 20.0 * static_cast<double>(config_.hidden_size)), [&] {
    ops::cuda::engram_gate(stream_, {.kv = work_.engram_kv,
                                     .count = current_.rows.count,
                                     .most = current_.rows.most,
                                     .hidden = config_.hidden_size,
                                     .q_weight = weights.q_weight,
                                     .k_weight = weights.k_weight,
                                     .norm_eps = norm_eps_,
                                     .streams = current_.activations->streams});
  });
  apply(weights_.layer(n).attention_norm, false, false);
}

void CudaForward::publish(int64_t n) {
  const LayerPlan& plan = plan_.layers[n];
  const CudaCompressorWeights& weights = *weights_.layer(n).compressor;
  linear("compressor", current_.activations->operand, weights.projection, LinearOutput::f32, work_.projected);
  op("kv entries", stream_cost(0, 4.0 * static_cast<double>(weights.projection.rows)), [&] {
    ops::cuda::insert_entries(stream_, {.projected = work_.projected,
                                        .stride = weights.projection.rows,
                                        .ratio = plan.ratio,
                                        .rows = current_.rows,
                                        .norm = weights.norm,
                                        .norm_eps = norm_eps_,
                                        .frequencies = compressed_frequencies_,
                                        .pending = cache_.pending(plan.kv_source),
                                        .pending_stride = cache_.pending_stride(),
                                        .entries = cache_.entries(plan.kv_source),
                                        .latent = work_.entry_latent});
  });
  linear("index key", work_.entry_latent, weights.index_key, LinearOutput::f32, work_.key_projected);
  op("kv keys", stream_cost(0, 4.0 * kIndexDim), [&] {
    ops::cuda::insert_keys(stream_, {.projected = work_.key_projected,
                                     .ratio = plan.ratio,
                                     .rows = current_.rows,
                                     .norm = weights.index_norm,
                                     .norm_eps = norm_eps_,
                                     .frequencies = compressed_frequencies_,
                                     .keys = cache_.keys(plan.kv_source)});
  });
}

void CudaForward::cut_rows() {
  op("cut rows", stream_cost(2, 8.0 * static_cast<double>(config_.hidden_size)), [&] {
    ops::cuda::cut_rows(stream_, {.rows = batch_.kept(),
                                  .count = current_.rows.count,
                                  .most = current_.rows.most,
                                  .hidden = config_.hidden_size,
                                  .streams = work_.all.streams,
                                  .pre = work_.all.pre,
                                  .x = work_.all.x,
                                  .operand = work_.all.operand,
                                  .streams_out = work_.kept.streams,
                                  .pre_out = work_.kept.pre,
                                  .x_out = work_.kept.x,
                                  .operand_out = work_.kept.operand});
  });
}

void CudaForward::attention(int64_t n) {
  const LayerPlan& plan = plan_.layers[n];
  const CudaLayerWeights& weights = weights_.layer(n);
  const bool global = plan.ratio > 0;
  const float* table = global ? compressed_frequencies_ : local_frequencies_;
  const int64_t record_stride = options_.max_rows * q8_bytes(kHeadDim);
  std::byte* records = work_.records + n * record_stride;

  linear("wq_a, wkv", current_.activations->x, weights.input, LinearOutput::f32, work_.projected);
  op("window record", stream_cost(0, 6.0 * static_cast<double>(weights.input.rows)), [&] {
    ops::cuda::insert_window(stream_, {.projected = work_.projected,
                                       .stride = weights.input.rows,
                                       .rows = current_.rows,
                                       .latent_size = config_.q_lora_rank,
                                       .latent_norm = weights.q_norm,
                                       .kv_norm = weights.kv_norm,
                                       .norm_eps = norm_eps_,
                                       .frequencies = table,
                                       .latent = work_.latent,
                                       .latent_stride = config_.q_lora_rank,
                                       .records = records});
  });
  linear("wq_b", work_.latent, weights.wq_b, LinearOutput::bf16, work_.q);
  if (weights.indexer) select_entries(n);
  op(global ? "attention" : "attention, window only", attention_cost(global), [&] {
    ops::cuda::attention(stream_, {.q = work_.q,
                                   .rows = current_.rows,
                                   .heads = config_.num_attention_heads,
                                   .window = config_.sliding_window,
                                   .chunk = records,
                                   .rings = cache_.ring(n),
                                   .ring_stride = cache_.slot_bytes(),
                                   .entries = global ? cache_.entries(plan.kv_source) : ops::cuda::Records{},
                                   .selected = global ? work_.selected : nullptr,
                                   .selected_counts = work_.selected_counts,
                                   .selected_stride = config_.index_topk,
                                   .sink = weights.sink,
                                   .frequencies = table,
                                   .out = work_.heads});
  });
  linear("wo_a", work_.heads, weights.wo_a, LinearOutput::q8, work_.grouped, config_.o_groups);
  linear("wo_b", work_.grouped, weights.wo_b, LinearOutput::bf16, work_.y);
}

void CudaForward::select_entries(int64_t n) {
  const LayerPlan& plan = plan_.layers[n];
  const CudaIndexerWeights& weights = *weights_.layer(n).indexer;
  linear("index query", work_.latent, weights.wq_b, LinearOutput::f32, work_.index_q);
  linear("index weights", current_.activations->operand, weights.weights_proj, LinearOutput::f32, work_.index_weights);
  op(plan.restricted ? "index select, candidates" : "index select", index_cost(plan), [&] {
    ops::cuda::index_select(stream_, {.q = work_.index_q,
                                      .weights = work_.index_weights,
                                      .rows = current_.rows,
                                      .heads = config_.index_n_heads,
                                      .ratio = plan.ratio,
                                      .frequencies = compressed_frequencies_,
                                      .keys = cache_.keys(plan.kv_source),
                                      .k = config_.index_topk,
                                      .make_candidates = plan.makes_candidates,
                                      .use_candidates = plan.restricted,
                                      .block_size = config_.candidate_block_size,
                                      .max_blocks = config_.candidate_topk_blocks,
                                      .candidates = work_.candidates,
                                      .candidate_counts = work_.candidate_counts,
                                      .scratch = work_.index,
                                      .selected = work_.selected,
                                      .selected_stride = config_.index_topk,
                                      .selected_counts = work_.selected_counts});
  });
}

void CudaForward::experts(int64_t n) {
  const CudaLayerWeights& weights = weights_.layer(n);
  op("router", linear_cost(weights.gate, LinearOutput::f32, 1), [&] {
    ops::cuda::router(stream_, {.x = current_.activations->operand,
                                .count = current_.rows.count,
                                .most = current_.rows.most,
                                .gate = weights.gate,
                                .bias = weights.gate_bias,
                                .top_k = config_.num_experts_per_tok,
                                .scaling_factor = static_cast<float>(config_.routed_scaling_factor),
                                .logits = work_.router_logits,
                                .lists = work_.lists});
  });
  op("experts", experts_cost(), [&] {
    ops::cuda::experts(stream_, {.x = current_.activations->x,
                                 .count = current_.rows.count,
                                 .most = current_.rows.most,
                                 .hidden = config_.hidden_size,
                                 .width = config_.moe_intermediate_size,
                                 .experts = config_.n_routed_experts,
                                 .top_k = config_.num_experts_per_tok,
                                 .lists = work_.lists,
                                 .routed = weights.experts,
                                 .shared_gate_up = weights.shared_gate_up,
                                 .shared_down = weights.shared_down,
                                 .swiglu_limit = static_cast<float>(config_.swiglu_limit),
                                 .inner = work_.inner,
                                 .shared_inner = work_.shared_inner,
                                 .outer = work_.outer,
                                 .shared = work_.shared,
                                 .tiles = work_.tiles});
  });
}

// The coefficients of a site depend on the streams alone, and nothing needs them before apply().
void CudaForward::mix_streams(const CudaHyperSite& site) {
  mixing_ = current_.rows.most <= kSideRows && !timed_;
  if (mixing_) {
    GANNET_CUDA_CHECK(cudaEventRecord(forked_, stream_));
    GANNET_CUDA_CHECK(cudaStreamWaitEvent(mix_stream_, forked_));
  }
  const double mix_operations = 2.0 * 24 * 4 * static_cast<double>(config_.hidden_size) * real_rows();
  Cost cost = stream_cost(1, 0);
  cost.bytes += 24.0 * 4 * 4 * static_cast<double>(config_.hidden_size);
  cost.operations = mix_operations;
  op("hyper mix", cost, [&] {
    ops::cuda::hyper_mix(mixing_ ? mix_stream_ : stream_, {.streams = current_.activations->streams,
                                                           .count = current_.rows.count,
                                                           .most = current_.rows.most,
                                                           .hidden = config_.hidden_size,
                                                           .fn = site.fn,
                                                           .base = site.base,
                                                           .scale = site.scale,
                                                           .sinkhorn_iterations = config_.hc_sinkhorn_iters,
                                                           .norm_eps = norm_eps_,
                                                           .eps = static_cast<float>(config_.hc_eps),
                                                           .partial = work_.partial,
                                                           .pre = current_.activations->pre,
                                                           .post = work_.post,
                                                           .mix = work_.mix});
  });
  if (mixing_) GANNET_CUDA_CHECK(cudaEventRecord(mixed_, mix_stream_));
}

void CudaForward::apply(const __nv_bfloat16* norm, bool attention_output, bool experts_output) {
  if (std::exchange(mixing_, false)) GANNET_CUDA_CHECK(cudaStreamWaitEvent(stream_, mixed_));
  const auto hidden = static_cast<double>(config_.hidden_size);
  const double output = experts_output     ? 4.0 * (static_cast<double>(config_.num_experts_per_tok) + 1) * hidden
                        : attention_output ? 2.0 * hidden
                                           : 0.0;
  op(experts_output ? "hyper apply, experts" : "hyper apply",
     stream_cost(attention_output || experts_output ? 2 : 1, output + 4.0 * hidden), [&] {
       ops::cuda::hyper_apply(stream_, {.streams = current_.activations->streams,
                                        .count = current_.rows.count,
                                        .most = current_.rows.most,
                                        .hidden = config_.hidden_size,
                                        .y = attention_output ? work_.y : nullptr,
                                        .shared = experts_output ? work_.shared : nullptr,
                                        .parts = experts_output ? work_.outer : nullptr,
                                        .top_k = config_.num_experts_per_tok,
                                        .post = work_.post,
                                        .mix = work_.mix,
                                        .pre = current_.activations->pre,
                                        .norm = norm,
                                        .norm_eps = norm_eps_,
                                        .x = current_.activations->x,
                                        .operand = current_.activations->operand});
     });
}

void CudaForward::keep_windows(int64_t first_layer, int64_t layers) {
  const int64_t layer_stride = options_.max_rows * q8_bytes(kHeadDim);
  op("keep windows", {}, [&] {
    ops::cuda::keep_windows(stream_, {.records = work_.records + first_layer * layer_stride,
                                      .layer_stride = layer_stride,
                                      .first_layer = first_layer,
                                      .layers = layers,
                                      .rows = current_.rows,
                                      .window = config_.sliding_window,
                                      .rings = cache_.rings(),
                                      .slot_stride = cache_.slot_bytes()});
  });
}

void CudaForward::linear(const char* name, const __nv_bfloat16* x, const PackedMatrix& weight, LinearOutput output,
                         void* y, int64_t groups) {
  op(name, linear_cost(weight, output, groups), [&] {
    ops::cuda::linear(stream_, {.x = x,
                                .x_stride = groups * weight.cols,
                                .count = current_.rows.count,
                                .most = current_.rows.most,
                                .weight = weight,
                                .groups = groups,
                                .output = output,
                                .y = y,
                                .y_stride = weight.rows});
  });
}

void CudaForward::enqueue_head(const Batch& batch, float* logits) {
  const auto wanted = std::ssize(batch.logit_rows);
  const auto& activations = batch_.kept_rows() == batch_.rows() ? work_.all : work_.kept;
  for (int64_t first = 0; first < wanted; first += CudaBatch::kHeadRows) {
    const int64_t rows = std::min(CudaBatch::kHeadRows, wanted - first);
    current_.rows = {.count = batch_.logit_count(first), .most = rows};
    op("head input", {}, [&] {
      ops::cuda::head_input(stream_, {.streams = activations.streams,
                                      .pre = activations.pre,
                                      .rows = batch_.logit_rows(first),
                                      .count = batch_.logit_count(first),
                                      .most = rows,
                                      .hidden = config_.hidden_size,
                                      .norm = weights_.norm(),
                                      .norm_eps = norm_eps_,
                                      .x = work_.head_x});
    });
    linear("head", work_.head_x, weights_.head(), LinearOutput::f32, work_.logits);
    if (logits == nullptr) continue;
    enqueue_logits(batch, first, rows, logits);
    enqueue_candidates(batch, first, rows);
  }
}

// Copies the logits of those rows that want them, neighbours together.
void CudaForward::enqueue_logits(const Batch& batch, int64_t first, int64_t rows, float* logits) {
  const auto wanted = [&](int64_t i) { return batch.candidates_only.empty() || batch.candidates_only[first + i] == 0; };
  for (int64_t begin = 0; begin < rows; ++begin) {
    int64_t end = begin;
    while (end < rows && wanted(end)) ++end;
    if (end == begin) continue;
    const auto bytes = static_cast<size_t>((end - begin) * config_.vocab_size) * sizeof(float);
    GANNET_CUDA_CHECK(cudaMemcpyAsync(logits + (first + begin) * config_.vocab_size,
                                      work_.logits + begin * config_.vocab_size, bytes, cudaMemcpyDeviceToHost,
                                      stream_));
    begin = end;
  }
}

void CudaForward::enqueue_candidates(const Batch& batch, int64_t first, int64_t rows) {
  if (batch.candidates_only.empty()) return;
  constexpr int64_t kCount = RowCandidates::kCount;
  static_assert(kCount == ops::cuda::kCandidates);
  ops::cuda::candidates(stream_, {.logits = work_.logits,
                                  .count = batch_.logit_count(first),
                                  .most = rows,
                                  .vocabulary = config_.vocab_size,
                                  .values = work_.candidate_logits,
                                  .ids = work_.candidate_ids,
                                  .log_sum = work_.candidate_sums,
                                  .mass = work_.candidate_sums + CudaBatch::kHeadRows});
  auto* values = reinterpret_cast<float*>(candidates_.data());
  auto* ids = reinterpret_cast<int32_t*>(values + options_.max_rows * kCount);
  const auto bytes = static_cast<size_t>(rows * kCount) * sizeof(float);
  GANNET_CUDA_CHECK(
      cudaMemcpyAsync(values + first * kCount, work_.candidate_logits, bytes, cudaMemcpyDeviceToHost, stream_));
  GANNET_CUDA_CHECK(cudaMemcpyAsync(ids + first * kCount, work_.candidate_ids, bytes, cudaMemcpyDeviceToHost, stream_));
}

void CudaForward::op(const char* name, const Cost& cost, const std::function<void()>& launch) {
  if (!timed_) {
    launch();
    return;
  }
  TimedOp timed{.name = name, .cost = cost, .begin = nullptr, .end = nullptr};
  GANNET_CUDA_CHECK(cudaEventCreate(&timed.begin));
  GANNET_CUDA_CHECK(cudaEventCreate(&timed.end));
  GANNET_CUDA_CHECK(cudaEventRecord(timed.begin, stream_));
  launch();
  GANNET_CUDA_CHECK(cudaEventRecord(timed.end, stream_));
  timed_->push_back(timed);
}

void CudaForward::observe(LayerObserver* observer, int64_t n, bool out) {
  if (observer == nullptr) return;
  // What goes into a decoder layer is seen on the rows that the encoder ran on only at the seam.
  const bool kept = n > plan_.seam || (n == plan_.seam && out);
  const std::vector<int32_t>& positions = kept ? batch_.kept_positions() : batch_.positions();
  const auto rows = std::ssize(positions);
  std::vector<__nv_bfloat16> streams(rows * 4 * config_.hidden_size);
  std::vector<float> pre(rows * 4);
  GANNET_CUDA_CHECK(cudaStreamSynchronize(stream_));
  GANNET_CUDA_CHECK(cudaMemcpy(streams.data(), current_.activations->streams, streams.size() * sizeof(__nv_bfloat16),
                               cudaMemcpyDeviceToHost));
  GANNET_CUDA_CHECK(
      cudaMemcpy(pre.data(), current_.activations->pre, pre.size() * sizeof(float), cudaMemcpyDeviceToHost));
  std::vector<float> wide(streams.size());
  std::transform(streams.begin(), streams.end(), wide.begin(), [](__nv_bfloat16 v) { return __bfloat162float(v); });
  if (out) {
    observer->layer_out(n, positions, wide.data(), pre.data());
  } else {
    observer->layer_in(n, positions, wide.data(), pre.data());
  }
}

}  // namespace gannet
