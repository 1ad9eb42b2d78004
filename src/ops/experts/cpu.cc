#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

#include "base/error.h"
#include "base/number_formats.h"
#include "ops/experts/kernels.h"
#include "ops/experts/op.h"
#include "ops/linear/kernels.h"
#include "ops/math.h"

namespace gannet::ops {
namespace {

// Outputs that a thread computes at a time: whole chunks, so that threads can prepare their parts of v by themselves.
constexpr int64_t kUnit = kPreparedChunk;
constexpr int64_t kUnitValues = 16 * 1024;  // of w1 and w3 that a thread holds at a time
constexpr int64_t kDownOutputs = 512;
constexpr int64_t kMaxSlots = 2048;  // values of v kept at a time: bounds the memory of large batches

// One expert and the rows that chose it. A slot is one row's use of one expert; a job's slots are consecutive.
struct Job {
  const ExpertWeights* weights;
  int64_t first_slot;
  int64_t rows;
};

struct Slot {
  int64_t row;
  float weight;
};

struct Plan {
  std::vector<Job> jobs;    // shared first, then by expert id: the order of the sum
  std::vector<Slot> slots;  // of all jobs, in their order; rows rise within a job
  std::vector<int64_t> next;

  void build(const ExpertsParams& p) {
    jobs.assign(1, {&p.shared, 0, p.rows});
    next.assign(p.routed_count, 0);
    for (int64_t i = 0; i < p.rows * p.top_k; ++i) ++next[p.experts[i]];
    int64_t first = p.rows;
    for (int64_t id = 0; id < p.routed_count; ++id) {
      const int64_t rows = next[id];
      next[id] = first;
      if (rows > 0) jobs.push_back({&p.routed[id], first, rows});
      first += rows;
    }
    slots.resize(first);
    for (int64_t row = 0; row < p.rows; ++row) slots[row] = {row, 1.0F};
    for (int64_t i = 0; i < p.rows * p.top_k; ++i) slots[next[p.experts[i]]++] = {i / p.top_k, p.weights[i]};
  }
};

void check(const ExpertsParams& p) {
  GANNET_CHECK(p.rows >= 0 && p.top_k >= 0 && p.swiglu_limit > 0);
  for (int64_t i = 0; i < p.rows * p.top_k; ++i) GANNET_CHECK(p.experts[i] >= 0 && p.experts[i] < p.routed_count);
  const int64_t hidden = p.shared.w1.cols;
  GANNET_CHECK(p.shared.w3.cols == hidden && p.shared.w2.rows == hidden);
  GANNET_CHECK(p.shared.w1.rows == p.shared.w2.cols && p.shared.w3.rows == p.shared.w2.cols);
}

class Experts {
 public:
  Experts(const Device& device, const LinearKernels& kernels, const ExpertsParams& params, const Plan& plan)
      : device_(device), kernels_(kernels), p_(params), plan_(plan), hidden_(params.shared.w1.cols) {
    int64_t width = 0;
    for (const Job& job : plan.jobs) width = std::max(width, job.weights->w2.cols);
    v_stride_ = prepared_cols(width);
  }

  void run() {
    prepare_input();
    const std::span<const Job> jobs(plan_.jobs);
    for (size_t begin = 0; begin < jobs.size();) {
      size_t end = begin + 1;
      int64_t slots = jobs[begin].rows;
      while (end < jobs.size() && slots + jobs[end].rows <= kMaxSlots) slots += jobs[end++].rows;
      prepare_values(jobs[begin].first_slot, slots);
      gate_and_up(jobs.subspan(begin, end - begin));
      down(jobs.subspan(begin, end - begin), end == jobs.size());
      begin = end;
    }
  }

 private:
  void prepare_input() {
    const int64_t width = prepared_cols(hidden_);
    float* x = scratch<struct ExpertInputTag>(p_.rows * width);
    prepare_rows(device_, kernels_, p_.x, p_.x_stride, p_.rows, hidden_, p_.quantize_input, x);
    x_ = scratch<struct ExpertInputRowsTag, const float*>(std::ssize(plan_.slots));
    for (int64_t s = 0; s < std::ssize(plan_.slots); ++s) x_[s] = x + plan_.slots[s].row * width;
  }

  void prepare_values(int64_t first_slot, int64_t slots) {
    v_ = scratch<struct ExpertValueTag>(slots * v_stride_);
    first_slot_ = first_slot;
    v_rows_ = scratch<struct ExpertValueRowsTag, const float*>(slots);
    for (int64_t s = 0; s < slots; ++s) v_rows_[s] = v_ + s * v_stride_;
  }

  // v of all jobs. Threads share the units of all experts by their cost, so that they end together whatever the
  // experts' numbers of rows are.
  void gate_and_up(std::span<const Job> jobs) {
    int64_t total = 0;
    for (const Job& job : jobs) total += units(job) * unit_cost(job);
    const int64_t threads = std::clamp<int64_t>(total / kWorthAThread, 1, device_.pool->size());
    const auto body = [&](int thread) {
      if (thread >= threads) return;
      const int64_t from = total * thread / threads;
      const int64_t to = total * (thread + 1) / threads;
      int64_t cost = 0;  // of the jobs before this one
      for (const Job& job : jobs) {
        const auto unit_at = [&](int64_t position) {
          return std::clamp<int64_t>((position - cost + unit_cost(job) - 1) / unit_cost(job), 0, units(job));
        };
        const int64_t end = unit_at(to);
        const int64_t some = std::max<int64_t>(1, kUnitValues / (kUnit * job.rows));
        for (int64_t unit = unit_at(from); unit < end; unit += some) {
          values_of_units(job, unit * kUnit, std::min(some, end - unit) * kUnit);
        }
        cost += units(job) * unit_cost(job);
      }
    };
    if (threads == 1) {
      body(0);
    } else {
      device_.pool->run(body);
    }
  }

  static int64_t units(const Job& job) { return prepared_cols(job.weights->w1.rows) / kUnit; }

  // In multiply-adds; reading a byte of weights takes about as long as eight.
  static int64_t unit_cost(const Job& job) {
    return std::max<int64_t>(1, (weight_bytes(job.weights->w1, 1) * 8 + job.weights->w1.cols * job.rows) * 2 * kUnit);
  }
  static constexpr int64_t kWorthAThread = 512 * 1024;  // some ten microseconds

  void values_of_units(const Job& job, int64_t first, int64_t width) {
    const int64_t count = std::min(width, job.weights->w1.rows - first);
    float* gate = scratch<struct ExpertGateTag>(job.rows * width);
    float* up = scratch<struct ExpertUpTag>(job.rows * width);
    multiply_gate_and_up(job, first, count, gate, up, width);
    for (int64_t r = 0; r < job.rows; ++r) {
      const int64_t slot = job.first_slot + r;
      float* v = gate + r * width;
      gate_values(v, up + r * width, plan_.slots[slot].weight, count);
      kernels_.prepare(v, count, p_.quantize_input, v_ + (slot - first_slot_) * v_stride_ + first);
    }
  }

  void multiply_gate_and_up(const Job& job, int64_t first, int64_t count, float* gate, float* up,
                            int64_t stride) const {
    const WeightMatrix& w1 = job.weights->w1;
    const WeightMatrix& w3 = job.weights->w3;
    const float* const* x = x_ + job.first_slot;
    LinearRange one{.weight = w1, .first = first, .count = count, .x = x, .rows = job.rows, .y = gate};
    LinearRange other{.weight = w3, .first = first, .count = count, .x = x, .rows = job.rows, .y = up};
    one.y_stride = other.y_stride = stride;
    if (w1.format == w3.format) {
      one.also = &other;
    } else {
      kernels_.multiply(other);
    }
    kernels_.multiply(one);
  }

  // Values in place of `gate`.
  void gate_values(float* gate, const float* up, float weight, int64_t count) const {
    if (device_.simd == Simd::avx512_bf16) {
      return gated_values_avx512(gate, up, weight, p_.swiglu_limit, count, gate);
    }
    for (int64_t i = 0; i < count; ++i) gate[i] = value(gate[i], up[i], weight);
  }

  float value(float gate, float up, float weight) const {
    const float a = std::min(gate, p_.swiglu_limit);
    const float b = std::clamp(up, -p_.swiglu_limit, p_.swiglu_limit);
    return a / (1 + std::exp(-a)) * b * weight;
  }

  // Adds w2 v of all jobs to y: every thread takes some outputs of all jobs, so that each sum keeps its order.
  void down(std::span<const Job> jobs, bool last) {
    int64_t cost = 0;
    for (const Job& job : jobs) cost += weight_bytes(job.weights->w2, 1) * 8 + job.weights->w2.cols * job.rows;
    const int64_t parts = std::clamp<int64_t>(cost * hidden_ / kWorthAThread, 1, device_.pool->size());
    const int64_t grain = ((hidden_ + parts - 1) / parts + 7) / 8 * 8;
    device_.pool->parallel_for(hidden_, grain, [&](int64_t begin, int64_t end) {
      for (int64_t first = begin; first < end; first += kDownOutputs) {
        const int64_t count = std::min(kDownOutputs, end - first);
        for (const Job& job : jobs) add_down(job, first, count);
        if (last && p_.activations == Activations::bf16) round_output(first, count);
      }
    });
  }

  void add_down(const Job& job, int64_t first, int64_t count) {
    float* part = scratch<struct ExpertDownTag>(job.rows * count);
    kernels_.multiply({.weight = job.weights->w2,
                       .first = first,
                       .count = count,
                       .x = v_rows_ + job.first_slot - first_slot_,
                       .rows = job.rows,
                       .y = part,
                       .y_stride = count});
    for (int64_t r = 0; r < job.rows; ++r) {
      float* y = p_.y + plan_.slots[job.first_slot + r].row * p_.y_stride + first;
      if (job.first_slot == 0) std::fill_n(y, count, 0.0F);
      for (int64_t i = 0; i < count; ++i) y[i] += part[r * count + i];
    }
  }

  void round_output(int64_t first, int64_t count) {
    for (int64_t row = 0; row < p_.rows; ++row) {
      float* y = p_.y + row * p_.y_stride + first;
      for (int64_t i = 0; i < count; ++i) y[i] = round_to_bf16(y[i]);
    }
  }

  const Device& device_;
  const LinearKernels& kernels_;
  const ExpertsParams& p_;
  const Plan& plan_;
  const int64_t hidden_;
  int64_t v_stride_ = 0;
  int64_t first_slot_ = 0;          // of the jobs at work
  const float** x_ = nullptr;       // [slots] prepared input of each slot
  float* v_ = nullptr;              // [slots at work, v_stride_] prepared values
  const float** v_rows_ = nullptr;  // [slots at work]
};

}  // namespace

void experts(const Device& device, const ExpertsParams& params) {
  check(params);
  if (params.rows == 0) return;
  const LinearKernels* kernels = linear_kernels(device.simd);
  if (kernels == nullptr) return experts_reference(params);
  thread_local Plan plan;
  plan.build(params);
  Experts(device, *kernels, params, plan).run();
}

}  // namespace gannet::ops
