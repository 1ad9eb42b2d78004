#include "server/metrics.h"

#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "server/process_stats.h"

namespace gannet::server {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;
using Labels = std::vector<ClientMetric::Label>;
using Families = std::vector<MetricFamily>;

const std::vector<double> kHttpSeconds = {0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1,   2.5,
                                          5,     10,    30,   60,   120, 300,  600, 1800};

ClientMetric histogram_metric(const Histogram& values, Labels labels) {
  ClientMetric metric;
  metric.label = std::move(labels);
  uint64_t cumulative = 0;
  for (size_t i = 0; i < values.bounds().size(); ++i) {
    cumulative += static_cast<uint64_t>(values.counts()[i]);
    metric.histogram.bucket.push_back({cumulative, values.bounds()[i]});
  }
  metric.histogram.sample_count = cumulative + static_cast<uint64_t>(values.counts().back());
  metric.histogram.sample_sum = values.sum();
  return metric;
}

// Collects metrics that share their labels.
class Sheet {
 public:
  Sheet(Families& families, Labels labels) : families_(families), labels_(std::move(labels)) {}

  void gauge(std::string name, std::string help, double value, Labels more = {}) {
    family(std::move(name), std::move(help), MetricType::Gauge).push_back(plain(std::move(more)));
    families_.back().metric.back().gauge.value = value;
  }
  void counter(std::string name, std::string help, double value, Labels more = {}) {
    family(std::move(name), std::move(help), MetricType::Counter).push_back(plain(std::move(more)));
    families_.back().metric.back().counter.value = value;
  }
  void histogram(std::string name, std::string help, const Histogram& values, Labels more = {}) {
    Labels labels = labels_;
    labels.insert(labels.end(), more.begin(), more.end());
    family(std::move(name), std::move(help), MetricType::Histogram)
        .push_back(histogram_metric(values, std::move(labels)));
  }

 private:
  // Metrics of one name follow each other.
  std::vector<ClientMetric>& family(std::string name, std::string help, MetricType type) {
    if (families_.empty() || families_.back().name != name) {
      families_.push_back({std::move(name), std::move(help), type, {}});
    }
    return families_.back().metric;
  }
  ClientMetric plain(Labels more) const {
    ClientMetric metric;
    metric.label = labels_;
    metric.label.insert(metric.label.end(), more.begin(), more.end());
    return metric;
  }

  Families& families_;
  Labels labels_;
};

double number(int64_t value) {
  return static_cast<double>(value);
}

void add_engine_gauges(Sheet& sheet, const EngineStats& stats) {
  const double usage = stats.blocks > 0 ? number(stats.blocks_held) / number(stats.blocks) : 0;
  sheet.gauge("vllm:num_requests_running", "Requests that run now", number(stats.running));
  sheet.gauge("vllm:num_requests_waiting", "Requests that wait to run", number(stats.waiting));
  const char* reasons = "Requests that wait to run, by what they wait for";
  sheet.gauge("vllm:num_requests_waiting_by_reason", reasons, number(stats.waiting - stats.deferred),
              {{"reason", "capacity"}});
  sheet.gauge("vllm:num_requests_waiting_by_reason", reasons, number(stats.deferred), {{"reason", "deferred"}});
  sheet.gauge("vllm:kv_cache_usage_perc", "KV blocks held by requests, as a part of all (0 to 1)", usage);
  sheet.gauge("vllm:gpu_cache_usage_perc", "Old name of vllm:kv_cache_usage_perc", usage);
  sheet.gauge("vllm:cache_config_info", "The KV cache's shape, in the labels; always 1", 1,
              {{"block_size", std::to_string(stats.block_tokens)}, {"num_gpu_blocks", std::to_string(stats.blocks)}});
  sheet.gauge("gannet:kv_blocks", "KV blocks in the pool", number(stats.blocks));
  sheet.gauge("gannet:kv_blocks_held", "KV blocks held by requests, shared ones counted once",
              number(stats.blocks_held));
  sheet.gauge("gannet:kv_blocks_cached", "KV blocks held by no request but kept for the next one with that prefix",
              number(stats.blocks_cached));
}

void add_token_counters(Sheet& sheet, const EngineStats& stats) {
  sheet.counter("vllm:prompt_tokens_total", "Prompt tokens of requests that began to run", number(stats.prompt_tokens));
  sheet.counter("vllm:generation_tokens_total", "Tokens generated", number(stats.generation_tokens));
  sheet.counter("vllm:prompt_tokens_cached_total", "Prompt tokens found in the prefix cache",
                number(stats.prompt_tokens_cached));
  const char* sources = "Prompt tokens by where their KV came from";
  const char* name = "vllm:prompt_tokens_by_source_total";
  sheet.counter(name, sources, number(stats.prompt_tokens - stats.prompt_tokens_cached), {{"source", "local_compute"}});
  sheet.counter(name, sources, number(stats.prompt_tokens_cached), {{"source", "local_cache_hit"}});
  sheet.counter(name, sources, 0, {{"source", "external_kv_transfer"}});
  sheet.counter("vllm:prefix_cache_queries_total", "Prompt tokens looked up in the prefix cache, once per request",
                number(stats.prefix_cache_queries));
  sheet.counter("vllm:prefix_cache_hits_total", "Prompt tokens found there, once per request",
                number(stats.prefix_cache_hits));
  sheet.counter("vllm:external_prefix_cache_queries_total", "Prompt tokens looked up in other engines' caches", 0);
  sheet.counter("vllm:external_prefix_cache_hits_total", "Prompt tokens found there", 0);
}

void add_request_counters(Sheet& sheet, const EngineStats& stats) {
  const char* name = "vllm:request_success_total";
  const char* help = "Requests that ended, by how";
  sheet.counter(name, help, number(stats.finished_stop), {{"finished_reason", "stop"}});
  sheet.counter(name, help, number(stats.finished_length), {{"finished_reason", "length"}});
  sheet.counter(name, help, number(stats.finished_cancelled), {{"finished_reason", "abort"}});
  sheet.counter(name, help, number(stats.finished_error), {{"finished_reason", "error"}});
  sheet.counter("vllm:num_preemptions_total", "Times a running request gave its KV back and started over",
                number(stats.preemptions));
  sheet.counter("gannet:steps_total", "Steps of the model", number(stats.steps));
  sheet.counter("gannet:encoder_rows_total", "Rows run through the layers up to the seam", number(stats.encoder_rows));
  sheet.counter("gannet:decoder_rows_total", "Rows run through the layers behind the seam", number(stats.decoder_rows));
  sheet.counter("gannet:replayed_rows_total", "Rows whose KV was cached, run again for their windows",
                number(stats.replayed_rows));
}

void add_engine_histograms(Sheet& sheet, const EngineStats& stats) {
  sheet.histogram("vllm:time_to_first_token_seconds", "From arrival to the first token", stats.time_to_first_token);
  sheet.histogram("vllm:inter_token_latency_seconds", "Between two tokens of a request", stats.inter_token_latency);
  const char* per_token = "Mean time per token after the first, of each request";
  sheet.histogram("vllm:request_time_per_output_token_seconds", per_token, stats.time_per_output_token);
  sheet.histogram("vllm:time_per_output_token_seconds", "Old name of vllm:request_time_per_output_token_seconds",
                  stats.time_per_output_token);
  sheet.histogram("vllm:e2e_request_latency_seconds", "From arrival to the end", stats.e2e_latency);
  sheet.histogram("vllm:request_queue_time_seconds", "From arrival to the first rows", stats.queue_time);
  sheet.histogram("vllm:request_prefill_time_seconds", "From the first rows to the first token", stats.prefill_time);
  sheet.histogram("vllm:request_decode_time_seconds", "From the first token to the last", stats.decode_time);
  sheet.histogram("vllm:request_inference_time_seconds", "From the first rows to the last token", stats.inference_time);
  sheet.histogram("vllm:request_prompt_tokens", "Prompt tokens of each request", stats.request_prompt_tokens);
  sheet.histogram("vllm:request_generation_tokens", "Tokens generated for each request",
                  stats.request_generation_tokens);
  sheet.histogram("vllm:request_max_num_generation_tokens", "Tokens that each request might have had",
                  stats.request_max_tokens);
  sheet.histogram("vllm:request_params_max_tokens", "max_tokens of each request", stats.request_max_tokens);
  sheet.histogram("vllm:request_prefill_kv_computed_tokens", "Prompt tokens of each request that were not cached",
                  stats.request_prefill_kv_computed_tokens);
  sheet.histogram("vllm:iteration_tokens_total", "Rows of each step", stats.iteration_tokens);
}

void add_tool_replay(Sheet& sheet, const ToolReplayStats& stats) {
  const char* name = "gannet:tool_replay_total";
  const char* help =
      "Answers with tool calls that clients sent back, by whether their sampled text went into the prompt";
  sheet.counter(name, help, number(stats.spliced), {{"outcome", "spliced"}});
  sheet.counter(name, help, number(stats.mismatched), {{"outcome", "mismatched"}});
  sheet.counter(name, help, number(stats.unknown), {{"outcome", "unknown"}});
}

void add_http(Families& families, const HttpMetrics& http) {
  const auto seconds = http.seconds();
  Sheet sheet(families, {});
  const auto labels = [](const HttpMetrics::Key& key) {
    return Labels{{"handler", key.handler}, {"method", key.method}, {"status", std::to_string(key.status)}};
  };
  for (const auto& [key, values] : seconds) {
    int64_t count = 0;
    for (const int64_t in_bucket : values.counts()) count += in_bucket;
    sheet.counter("http_requests_total", "HTTP requests answered", number(count), labels(key));
  }
  for (const auto& [key, values] : seconds) {
    sheet.histogram("http_request_duration_seconds", "From a request's first byte to its answer's last", values,
                    labels(key));
  }
}

void add_process(Families& families, const ProcessStats& stats) {
  Sheet sheet(families, {});
  sheet.counter("process_cpu_seconds_total", "Processor time used, user and system", stats.cpu_seconds);
  sheet.gauge("process_open_fds", "Open file descriptors", number(stats.open_files));
  sheet.gauge("process_max_fds", "Most file descriptors that may be open", number(stats.max_files));
  sheet.gauge("process_virtual_memory_bytes", "Virtual memory", number(stats.virtual_bytes));
  sheet.gauge("process_resident_memory_bytes", "Memory in use, mapped files included", number(stats.resident_bytes));
  sheet.gauge("process_threads", "Threads", number(stats.threads));
  sheet.gauge("process_start_time_seconds", "Unix time of the start", stats.start_time);
}

}  // namespace

void HttpMetrics::observe(std::string_view handler, const RequestRecord& record) {
  constexpr std::array<std::string_view, 6> kMethods = {"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS"};
  const bool known = std::find(kMethods.begin(), kMethods.end(), record.method) != kMethods.end();
  Key key{.handler = std::string(handler), .method = known ? record.method : "other", .status = record.status};
  const std::lock_guard lock(mutex_);
  seconds_.try_emplace(std::move(key), kHttpSeconds).first->second.observe(record.seconds);
}

std::map<HttpMetrics::Key, Histogram> HttpMetrics::seconds() const {
  const std::lock_guard lock(mutex_);
  return seconds_;
}

std::string metrics_text(const MetricsSource& source) {
  Families families;
  if (source.engine != nullptr) {
    Sheet sheet(families, {{"model_name", source.model_name}, {"engine", "0"}});
    add_engine_gauges(sheet, *source.engine);
    add_token_counters(sheet, *source.engine);
    add_request_counters(sheet, *source.engine);
    add_engine_histograms(sheet, *source.engine);
    if (source.tool_replay != nullptr) add_tool_replay(sheet, *source.tool_replay);
  }
  if (source.http != nullptr) add_http(families, *source.http);
  add_process(families, read_process_stats());
  return prometheus::TextSerializer().Serialize(families);
}

}  // namespace gannet::server
