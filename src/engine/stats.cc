#include "engine/stats.h"

#include <vector>

namespace gannet {
namespace {

// Bucket bounds are those of vLLM's metrics of the same names, so that dashboards fit.
const std::vector<double> kLatency = {0.3,  0.5,  0.8,  1.0,  1.5,   2.0,   2.5,   5.0,   10.0,   15.0,  20.0,
                                      30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0};
const std::vector<double> kFirstToken = {0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1,  0.25,  0.5,   0.75,
                                         1.0,   2.5,   5.0,  7.5,  10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0};
const std::vector<double> kPerToken = {0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2,  0.3,  0.4, 0.5,
                                       0.75, 1.0,   2.5,  5.0,   7.5, 10.0, 20.0, 40.0, 80.0};

// 1, 2, 5, 10, ... up to a million.
std::vector<double> token_bounds() {
  std::vector<double> bounds;
  for (double decade = 1; decade <= 1e6; decade *= 10) {
    for (const double step : {1, 2, 5}) bounds.push_back(decade * step);
  }
  while (bounds.back() > 1e6) bounds.pop_back();
  return bounds;
}

}  // namespace

EngineStats::EngineStats()
    : time_to_first_token(kFirstToken),
      inter_token_latency(kPerToken),
      time_per_output_token(kPerToken),
      e2e_latency(kLatency),
      queue_time(kLatency),
      prefill_time(kLatency),
      decode_time(kLatency),
      inference_time(kLatency),
      request_prompt_tokens(token_bounds()),
      request_generation_tokens(token_bounds()),
      request_max_tokens(token_bounds()),
      request_prefill_kv_computed_tokens(token_bounds()),
      iteration_tokens(token_bounds()) {}

}  // namespace gannet
