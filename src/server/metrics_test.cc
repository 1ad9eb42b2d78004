#include "server/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "server/process_stats.h"

namespace gannet::server {
namespace {

// Samples of the text format by their name and labels.
std::map<std::string, double> samples(const std::string& text) {
  std::map<std::string, double> found;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with('#')) continue;
    const auto space = line.rfind(' ');
    EXPECT_TRUE(found.emplace(line.substr(0, space), std::stod(line.substr(space + 1))).second) << line;
  }
  return found;
}

// Every counter another number, so that none can stand in for another.
EngineStats numbered_stats() {
  EngineStats stats;
  int64_t next = 100;
  for (int64_t* field : {&stats.running, &stats.waiting, &stats.block_tokens, &stats.blocks_held, &stats.blocks_cached,
                         &stats.prompt_tokens_cached, &stats.prefix_cache_hits, &stats.prefix_cache_queries,
                         &stats.prompt_tokens, &stats.steps, &stats.encoder_rows, &stats.decoder_rows,
                         &stats.replayed_rows, &stats.generation_tokens, &stats.preemptions, &stats.finished_stop,
                         &stats.finished_length, &stats.finished_cancelled, &stats.finished_error}) {
    *field = next++;
  }
  stats.deferred = 1;
  stats.blocks = 412;
  double value = 0.001;
  for (Histogram* histogram :
       {&stats.time_to_first_token, &stats.inter_token_latency, &stats.time_per_output_token, &stats.e2e_latency,
        &stats.queue_time, &stats.prefill_time, &stats.decode_time, &stats.inference_time, &stats.request_prompt_tokens,
        &stats.request_generation_tokens, &stats.request_max_tokens, &stats.request_prefill_kv_computed_tokens,
        &stats.iteration_tokens}) {
    histogram->observe(value);
    histogram->observe(1e9);
    value += 0.001;
  }
  return stats;
}

std::map<std::string, double> engine_samples() {
  const EngineStats stats = numbered_stats();
  const ToolReplayStats replay{.spliced = 7, .mismatched = 8, .unknown = 9};
  MetricsSource source;
  source.model_name = "m";
  source.engine = &stats;
  source.tool_replay = &replay;
  return samples(metrics_text(source));
}

TEST(Metrics, HasEveryGaugeAndCounterUnderItsName) {
  const auto found = engine_samples();
  const std::pair<std::string, double> expected[] = {
      {"vllm:num_requests_running", 100},
      {"vllm:num_requests_waiting", 101},
      {R"(vllm:num_requests_waiting_by_reason reason="capacity")", 100},
      {R"(vllm:num_requests_waiting_by_reason reason="deferred")", 1},
      {"vllm:kv_cache_usage_perc", 0.25},
      {"vllm:gpu_cache_usage_perc", 0.25},
      {R"(vllm:cache_config_info block_size="102",num_gpu_blocks="412")", 1},
      {"gannet:kv_blocks", 412},
      {"gannet:kv_blocks_held", 103},
      {"gannet:kv_blocks_cached", 104},
      {"vllm:prompt_tokens_cached_total", 105},
      {"vllm:prefix_cache_hits_total", 106},
      {"vllm:prefix_cache_queries_total", 107},
      {"vllm:prompt_tokens_total", 108},
      {R"(vllm:prompt_tokens_by_source_total source="local_compute")", 3},
      {R"(vllm:prompt_tokens_by_source_total source="local_cache_hit")", 105},
      {R"(vllm:prompt_tokens_by_source_total source="external_kv_transfer")", 0},
      {"vllm:external_prefix_cache_queries_total", 0},
      {"vllm:external_prefix_cache_hits_total", 0},
      {"gannet:steps_total", 109},
      {"gannet:encoder_rows_total", 110},
      {"gannet:decoder_rows_total", 111},
      {"gannet:replayed_rows_total", 112},
      {"vllm:generation_tokens_total", 113},
      {"vllm:num_preemptions_total", 114},
      {R"(vllm:request_success_total finished_reason="stop")", 115},
      {R"(vllm:request_success_total finished_reason="length")", 116},
      {R"(vllm:request_success_total finished_reason="abort")", 117},
      {R"(vllm:request_success_total finished_reason="error")", 118},
      {R"(gannet:tool_replay_total outcome="spliced")", 7},
      {R"(gannet:tool_replay_total outcome="mismatched")", 8},
      {R"(gannet:tool_replay_total outcome="unknown")", 9},
  };
  for (const auto& [entry, value] : expected) {
    const auto space = entry.find(' ');
    const std::string more = space == std::string::npos ? "" : "," + entry.substr(space + 1);
    const std::string sample = entry.substr(0, space) + R"({model_name="m",engine="0")" + more + "}";
    ASSERT_TRUE(found.contains(sample)) << sample;
    EXPECT_EQ(found.at(sample), value) << sample;
  }
}

TEST(Metrics, HasEveryHistogramUnderItsName) {
  const auto found = engine_samples();
  // Names, and the first value that was observed in thousandths.
  const std::pair<const char*, double> expected[] = {
      {"vllm:time_to_first_token_seconds", 1},
      {"vllm:inter_token_latency_seconds", 2},
      {"vllm:request_time_per_output_token_seconds", 3},
      {"vllm:time_per_output_token_seconds", 3},
      {"vllm:e2e_request_latency_seconds", 4},
      {"vllm:request_queue_time_seconds", 5},
      {"vllm:request_prefill_time_seconds", 6},
      {"vllm:request_decode_time_seconds", 7},
      {"vllm:request_inference_time_seconds", 8},
      {"vllm:request_prompt_tokens", 9},
      {"vllm:request_generation_tokens", 10},
      {"vllm:request_max_num_generation_tokens", 11},
      {"vllm:request_params_max_tokens", 11},
      {"vllm:request_prefill_kv_computed_tokens", 12},
      {"vllm:iteration_tokens_total", 13},
  };
  for (const auto& [name, thousandths] : expected) {
    const std::string labels = R"({model_name="m",engine="0")";
    ASSERT_TRUE(found.contains(name + ("_sum" + labels) + "}")) << name;
    EXPECT_EQ(found.at(name + ("_count" + labels) + "}"), 2) << name;
    EXPECT_EQ(found.at(name + ("_bucket" + labels) + R"(,le="+Inf"})"), 2) << name;
    EXPECT_NEAR(found.at(name + ("_sum" + labels) + "}") - 1e9, thousandths / 1000, 1e-5) << name;
  }
}

TEST(Metrics, BucketsCountUpwards) {
  Histogram histogram({1, 2, 3});
  for (const double value : {0.5, 1.0, 1.5, 9.0}) histogram.observe(value);
  EngineStats stats;
  stats.queue_time = histogram;
  MetricsSource source;
  source.model_name = "m";
  source.engine = &stats;
  const auto found = samples(metrics_text(source));
  const std::string bucket = R"(vllm:request_queue_time_seconds_bucket{model_name="m",engine="0",le=")";
  EXPECT_EQ(found.at(bucket + "1\"}"), 2);
  EXPECT_EQ(found.at(bucket + "2\"}"), 3);
  EXPECT_EQ(found.at(bucket + "3\"}"), 3);
  EXPECT_EQ(found.at(bucket + "+Inf\"}"), 4);
}

TEST(Metrics, EscapesTheModelsName) {
  const EngineStats stats;
  MetricsSource source;
  source.model_name = "a\"b\\c\nd";
  source.engine = &stats;
  EXPECT_THAT(metrics_text(source), testing::HasSubstr(R"(model_name="a\"b\\c\nd")"));
}

TEST(Metrics, CountsRequestsByHandlerMethodAndStatus) {
  HttpMetrics http;
  RequestRecord record;
  record.method = "POST";
  record.status = 200;
  record.seconds = 0.2;
  http.observe("/a", record);
  record.seconds = 0.3;
  http.observe("/a", record);
  record.status = 429;
  record.method = "BREW";
  http.observe("/a", record);
  MetricsSource source;
  source.http = &http;
  const auto found = samples(metrics_text(source));
  EXPECT_EQ(found.at(R"(http_requests_total{handler="/a",method="POST",status="200"})"), 2);
  EXPECT_EQ(found.at(R"(http_requests_total{handler="/a",method="other",status="429"})"), 1);
  EXPECT_EQ(found.at(R"(http_request_duration_seconds_sum{handler="/a",method="POST",status="200"})"), 0.5);
  EXPECT_EQ(found.at(R"(http_request_duration_seconds_bucket{handler="/a",method="POST",status="200",le="0.25"})"), 1);
}

TEST(Metrics, TellsOfTheProcessWithoutAModel) {
  const std::string text = metrics_text({});
  const auto found = samples(text);
  EXPECT_FALSE(found.contains(R"(vllm:num_requests_running{model_name="",engine="0"})"));
  EXPECT_GT(found.at("process_resident_memory_bytes"), 1e6);
  EXPECT_GT(found.at("process_virtual_memory_bytes"), found.at("process_resident_memory_bytes"));
  EXPECT_GE(found.at("process_open_fds"), 3);
  EXPECT_GE(found.at("process_max_fds"), found.at("process_open_fds"));
  EXPECT_GE(found.at("process_threads"), 1);
  EXPECT_GE(found.at("process_cpu_seconds_total"), 0);
  EXPECT_GT(found.at("process_start_time_seconds"), 1.5e9);
  EXPECT_THAT(text, testing::HasSubstr("# TYPE process_cpu_seconds_total counter"));
}

}  // namespace
}  // namespace gannet::server
