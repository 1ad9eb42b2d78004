#include <algorithm>
#include <chrono>
#include <thread>

#include "model/cuda/forward.h"
#include "model/cuda/geometry.h"
#include "ops/cuda/check.h"

// How long the ops of a pass take, and what each must at least move and compute.
namespace gannet {

using ops::cuda::LinearOutput;
using ops::cuda::PackedMatrix;

double CudaForward::microseconds(std::span<const TimedOp> ops) {
  double sum = 0;
  for (const TimedOp& timed : ops) {
    float milliseconds = 0;
    GANNET_CUDA_CHECK(cudaEventElapsedTime(&milliseconds, timed.begin, timed.end));
    cudaEventDestroy(timed.begin);
    cudaEventDestroy(timed.end);
    sum += milliseconds * 1e3;
  }
  return sum;
}

std::vector<CudaForward::OpTime> CudaForward::time_ops(const Batch& batch) {
  // The stream stands still until the host is ahead: no op waits for its launch.
  expected_experts_ = active_experts();
  timed_.emplace();
  const auto stand_still = [](void*) { std::this_thread::sleep_for(std::chrono::milliseconds(20)); };
  GANNET_CUDA_CHECK(cudaLaunchHostFunc(stream_, stand_still, nullptr));
  run(batch, nullptr);
  enqueue_head(batch, nullptr);
  // What a pair of events takes with nothing between them.
  constexpr int kEmptyOps = 16;
  const size_t ops = timed_->size();
  for (int i = 0; i < kEmptyOps; ++i) op("", {}, [] {});
  GANNET_CUDA_CHECK(cudaStreamSynchronize(stream_));
  const double empty = microseconds(std::span(*timed_).subspan(ops)) / kEmptyOps;
  timed_->resize(ops);
  std::vector<OpTime> times;
  for (const TimedOp& timed : *timed_) {
    const double elapsed = std::max(0.0, microseconds({&timed, 1}) - empty);
    auto known = std::find_if(times.begin(), times.end(), [&](const OpTime& t) { return t.name == timed.name; });
    if (known == times.end()) known = times.insert(times.end(), {.name = timed.name, .cost = {}});
    known->microseconds += elapsed;
    ++known->launches;
    known->cost.bytes += timed.cost.bytes;
    known->cost.operations += timed.cost.operations;
  }
  timed_.reset();
  return times;
}

int64_t CudaForward::active_experts() const {
  int32_t active = 0;
  GANNET_CUDA_CHECK(cudaMemcpy(&active, work_.lists.active_count, sizeof(active), cudaMemcpyDeviceToHost));
  return active;
}

double CudaForward::real_rows() const {
  const bool kept = current_.rows.count != batch_.encoder_rows(1).count;
  return static_cast<double>(kept ? batch_.kept_rows() : batch_.rows());
}

CudaForward::Cost CudaForward::linear_cost(const PackedMatrix& weight, LinearOutput output, int64_t groups) const {
  const auto rows = real_rows();
  const double out = (output == LinearOutput::f32 ? 4.0 : 2.0) * static_cast<double>(weight.rows);
  return {.bytes = static_cast<double>(ops::cuda::packed_bytes(weight.format, weight.rows, weight.cols)) +
                   rows * (2.0 * static_cast<double>(groups * weight.cols) + out),
          .operations = 2.0 * rows * static_cast<double>(weight.rows) * static_cast<double>(weight.cols)};
}

// Passes over all four streams, and other bytes of a row.
CudaForward::Cost CudaForward::stream_cost(double stream_passes, double other_bytes) const {
  return {.bytes = real_rows() * (stream_passes * 8 * static_cast<double>(config_.hidden_size) + other_bytes)};
}

CudaForward::Cost CudaForward::attention_cost(bool global) const {
  Cost cost;
  const auto& positions = current_.activations == &work_.kept ? batch_.kept_positions() : batch_.positions();
  const auto heads = static_cast<double>(config_.num_attention_heads);
  for (const int32_t p : positions) {
    const auto window = static_cast<double>(std::min<int64_t>(p + 1, config_.sliding_window));
    const auto entries = global ? static_cast<double>(std::min<int64_t>(p + 1, config_.index_topk)) : 0.0;
    cost.bytes += window * 528 + entries * 288 + 4.0 * heads * kHeadDim;
    cost.operations += 4.0 * heads * kHeadDim * (window + entries);
  }
  return cost;
}

CudaForward::Cost CudaForward::index_cost(const LayerPlan& plan) const {
  Cost cost;
  const auto& positions = current_.activations == &work_.kept ? batch_.kept_positions() : batch_.positions();
  int64_t longest = 0;
  for (const int32_t p : positions) {
    int64_t keys = (p + 1) / plan.ratio;
    if (plan.restricted) keys = std::min(keys, config_.candidate_topk_blocks * config_.candidate_block_size);
    cost.operations += 2.0 * static_cast<double>(keys * config_.index_n_heads * kIndexDim);
    longest = std::max(longest, keys);
  }
  // Rows of one sequence share keys: those of the longest row count once for each sequence.
  cost.bytes = 68.0 * static_cast<double>(longest * batch_.sequences());
  return cost;
}

// Every active expert's weights once; how many these are, only the device knows.
CudaForward::Cost CudaForward::experts_cost() const {
  const double rows = real_rows();
  const auto width = static_cast<double>(config_.moe_intermediate_size);
  const auto hidden = static_cast<double>(config_.hidden_size);
  const auto top_k = static_cast<double>(config_.num_experts_per_tok);
  const auto active = static_cast<double>(expected_experts_);
  return {.bytes = active * 3 * width * hidden * 4.25 / 8 + 3 * width * hidden + rows * (top_k + 1) * hidden * 4,
          .operations = 6 * rows * (top_k + 1) * width * hidden};
}

}  // namespace gannet
