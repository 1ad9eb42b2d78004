#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/device.h"
#include "cli/bench.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "engine/scheduler.h"

// What planning costs, without a model: the work of the engine's thread between two steps, at many requests and long
// contexts. A step is planned while another runs, so this is time that a step must take at least to hide it.
namespace gannet::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kBlockTokens = 64;
constexpr int64_t kMostTokens = int64_t{1} << 28;  // of all requests together: a GiB of ids
constexpr int kSteps = 400;

struct Options {
  bool json = false;
};

struct Measured {
  int64_t requests = 0;
  int64_t context = 0;
  double median_us = 0;  // of a step in which every request decodes
  double p99_us = 0;
  double admission_us = 0;  // more for a step that lets in one more request, all of whose prompt is cached
};

double microseconds(Clock::duration time) {
  return std::chrono::duration<double, std::micro>(time).count();
}

// Requests that have run through their prompts and decode.
class Crowd {
 public:
  Crowd(int64_t requests, int64_t context)
      : context_(context),
        pool_({.tokens = kBlockTokens, .bytes = 0},
              (requests + 2) * (context / kBlockTokens + 2 + kSteps / kBlockTokens)),
        scheduler_({.max_num_batched_tokens = (requests + 1) * (context + 1), .max_num_seqs = requests + 1}, pool_,
                   nullptr, nullptr) {
    for (int64_t i = 0; i < requests; ++i) add(i);
    step();
  }

  void add(int64_t number) {
    Request request;
    request.prompt.resize(context_);
    for (int64_t i = 0; i < context_; ++i) request.prompt[i] = static_cast<int32_t>((number * 7919 + i) % 100000);
    auto live = std::make_unique<LiveRequest>(++last_id_, std::move(request), 100 * kSteps, std::span<const int32_t>());
    live->root = scheduler_.hasher().root("");
    scheduler_.hasher().extend(live->root, live->tokens, live->hashes);
    scheduler_.add(std::move(live));
  }

  // One step, its tokens being made up outside of the time that is returned.
  double step() {
    const auto begin = Clock::now();
    StepPlan plan = scheduler_.plan();
    scheduler_.settle(plan);
    const auto planned = Clock::now();
    StepResult result;
    result.parts.resize(plan.parts.size());
    for (auto& part : result.parts) {
      part.token.emplace();
      part.token->id = 5;
    }
    const auto ran = Clock::now();
    scheduler_.apply(plan, result);
    return microseconds(planned - begin) + microseconds(Clock::now() - ran);
  }

 private:
  int64_t context_;
  BlockPool pool_;
  Scheduler scheduler_;
  RequestId last_id_ = 0;
};

Measured measure(int64_t requests, int64_t context) {
  Crowd crowd(requests, context);
  std::vector<double> times;
  for (int i = 0; i < kSteps; ++i) times.push_back(crowd.step());
  std::sort(times.begin(), times.end());
  Measured measured{.requests = requests, .context = context};
  measured.median_us = times[kSteps / 2];
  measured.p99_us = times[kSteps * 99 / 100];
  crowd.add(0);
  measured.admission_us = std::max(0.0, crowd.step() - measured.median_us);
  return measured;
}

std::string as_table(const std::vector<Measured>& results) {
  std::string text = fmt::format(
      "{}, one thread. Microseconds to plan a step in which every request decodes one token and to take its tokens,\n"
      "over {} steps; and how much longer it takes when one more request comes whose prompt is cached.\n\n"
      "{:>9} {:>9} {:>11} {:>9} {:>13}\n",
      processor_name(), kSteps, "requests", "context", "median us", "p99 us", "admission us");
  for (const Measured& m : results) {
    fmt::format_to(std::back_inserter(text), "{:>9} {:>9} {:>11.1f} {:>9.1f} {:>13.1f}\n", m.requests, m.context,
                   m.median_us, m.p99_us, m.admission_us);
  }
  return text;
}

std::string as_json(const std::vector<Measured>& results) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const Measured& m : results) {
    list.push_back({{"requests", m.requests},
                    {"context", m.context},
                    {"median_us", m.median_us},
                    {"p99_us", m.p99_us},
                    {"admission_us", m.admission_us}});
  }
  const nlohmann::ordered_json result = {{"processor", processor_name()}, {"steps", kSteps}, {"results", list}};
  return result.dump(2) + "\n";
}

Status bench_scheduler(const Options& options) {
  std::vector<Measured> results;
  ProgressLine progress("cases");
  for (const int64_t requests : {16, 64, 256, 1024, 4096}) {
    for (const int64_t context : {1 << 10, 1 << 14, 1 << 17, 1 << 20}) {
      if (requests * context > kMostTokens) continue;
      progress(std::ssize(results), 18);
      results.push_back(measure(requests, context));
    }
  }
  return write_output(options.json ? as_json(results) : as_table(results));
}

}  // namespace

void add_bench_scheduler(Command& bench) {
  const auto options = std::make_shared<Options>();
  auto command = bench.subcommand("scheduler", "What planning a step costs, without a model");
  command.flag("--json", options->json, "Machine-readable");
  command.example("gannet bench scheduler");
  command.action([options] { return bench_scheduler(*options); });
}

}  // namespace gannet::cli
