#include <sys/resource.h>
#include <time.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "base/device.h"
#include "base/log.h"
#include "cli/bench.h"
#include "cli/bench_load.h"
#include "cli/bench_null_engine.h"
#include "cli/byte_tokenizer.h"
#include "cli/model_options.h"
#include "cli/output.h"
#include "server/api_server.h"
#include "server/http_server.h"

namespace gannet::cli {
namespace {

using nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;

constexpr double kLongestStart = 30;  // seconds until all streams run, on a busy machine

struct Options {
  std::string model;
  bool json = false;
  int64_t streams = 2000;
  double pace = 10;
  int64_t seconds = 10;
  bool lockstep = false;
  int64_t prompt_tokens = 64;
  int64_t max_tokens = 64;
  int64_t requests = 2;
  ModelOptions engine;
};

double seconds_of(Clock::duration duration) {
  return std::chrono::duration<double>(duration).count();
}

double cpu_seconds(clockid_t clock) {
  timespec time{};
  clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

// Of a sorted list; `part` of the values are not above it.
double quantile(const std::vector<double>& sorted, double part) {
  if (sorted.empty()) return 0;
  const auto index = static_cast<size_t>(part * static_cast<double>(sorted.size() - 1));
  return sorted[index];
}

// A server on a port of its own, with everything that a real one has.
class BenchServer {
 public:
  static Result<std::unique_ptr<BenchServer>> start(server::ServedModel model) {
    auto bench = std::make_unique<BenchServer>();
    bench->model_ = std::move(model);
    bench->api_.start_serving(bench->model_);
    server::ApiServer& api = bench->api_;
    GANNET_TRY(bench->http_, server::HttpServer::listen(
                                 {}, [&api](const server::HttpRequest& request) { return api.handle(request); },
                                 server::ApiServer::error_page,
                                 [&api](const server::RequestRecord& record) { api.observe(record); }));
    bench->thread_ = std::thread([http = bench->http_.get()] { http->run(); });
    return bench;
  }
  BenchServer() = default;
  BenchServer(const BenchServer&) = delete;
  BenchServer& operator=(const BenchServer&) = delete;
  ~BenchServer() {
    if (!thread_.joinable()) return;
    http_->stop();
    thread_.join();
  }
  uint16_t port() const { return http_->port(); }

 private:
  server::ServedModel model_;
  server::ApiServer api_{server::ApiOptions()};
  std::unique_ptr<server::HttpServer> http_;
  std::thread thread_;
};

// ---- without a model

struct Overhead {
  double seconds = 0;  // in which all streams ran
  int64_t tokens = 0;  // that came in them
  int64_t events = 0;
  double server_cpu = 0;  // seconds of all threads but the clients'
  double client_cpu = 0;
  std::vector<double> latency;  // of each token, seconds, sorted
};

// Reads the null engine's tokens and times them while all streams run.
class OverheadMeter {
 public:
  OverheadMeter(const NullEngine& engine, const Options& options)
      : engine_(engine), seconds_(static_cast<double>(options.seconds)), seen_(static_cast<size_t>(options.streams)) {}

  // False once there is nothing more to measure.
  bool take(size_t stream, std::string_view event, Clock::time_point now) {
    constexpr std::string_view kContent = R"("content":")";
    const auto at = event.find(kContent);
    if (at == std::string_view::npos) return true;
    int64_t count = 0;
    for (size_t i = at + kContent.size(); i < event.size() && event[i] == 'x'; ++i) ++count;
    if (count == 0) return true;
    const int64_t first = seen_[stream];
    seen_[stream] += count;
    if (first == 0 && ++begun_ == std::ssize(seen_)) begin(now);
    if (begun_ < std::ssize(seen_)) return true;
    ++result_.events;
    result_.tokens += count;
    for (int64_t index = first; index < first + count; ++index) {
      const auto given = engine_.given(static_cast<int64_t>(stream), index);
      if (given >= began_) result_.latency.push_back(seconds_of(now - given));
    }
    if (seconds_of(now - began_) < seconds_) return true;
    end(now);
    return false;
  }

  Overhead result() {
    std::sort(result_.latency.begin(), result_.latency.end());
    return std::move(result_);
  }

 private:
  void begin(Clock::time_point now) {
    began_ = now;
    process_cpu_ = cpu_seconds(CLOCK_PROCESS_CPUTIME_ID);
    client_cpu_ = cpu_seconds(CLOCK_THREAD_CPUTIME_ID);
  }
  void end(Clock::time_point now) {
    result_.seconds = seconds_of(now - began_);
    result_.client_cpu = cpu_seconds(CLOCK_THREAD_CPUTIME_ID) - client_cpu_;
    result_.server_cpu = cpu_seconds(CLOCK_PROCESS_CPUTIME_ID) - process_cpu_ - result_.client_cpu;
  }

  const NullEngine& engine_;
  const double seconds_;
  std::vector<int64_t> seen_;  // tokens of each stream
  int64_t begun_ = 0;
  Clock::time_point began_;
  double process_cpu_ = 0;
  double client_cpu_ = 0;
  Overhead result_;
};

std::vector<LoadClient::Stream> overhead_streams(const Options& options, int64_t tokens) {
  const auto gap = std::chrono::microseconds(1'000'000 / options.streams);
  std::vector<LoadClient::Stream> streams;
  for (int64_t number = 0; number < options.streams; ++number) {
    const ordered_json body = {{"messages", {{{"role", "user"}, {"content", "hello"}}}},
                               {"thinking", {{"type", "disabled"}}},
                               {"stream", true},
                               {"max_tokens", tokens},
                               {"seed", number}};
    streams.push_back({body.dump(), number * gap});
  }
  return streams;
}

Result<Overhead> measure_overhead(const Options& options) {
  const int64_t vocab = least_byte_tokenizer_size();
  GANNET_TRY(const auto tokenizer, text::Tokenizer::parse(byte_tokenizer_json(vocab), "the byte tokenizer"));
  GANNET_TRY(const auto ids, tokenizer.encode("x"));
  const double longest = static_cast<double>(options.seconds) + kLongestStart;
  const auto tokens = static_cast<int64_t>(options.pace * longest) + 1;
  NullEngine engine({.vocab_size = vocab,
                     .id = ids.front(),
                     .pace = std::chrono::microseconds(static_cast<int64_t>(1e6 / options.pace)),
                     .lockstep = options.lockstep,
                     .requests = options.streams,
                     .tokens = tokens});
  server::ServedModel model;
  model.names = {"null"};
  model.tokenizer = &tokenizer;
  model.engine = &engine;
  model.max_unfinished = options.streams;
  GANNET_TRY(const auto server, BenchServer::start(std::move(model)));
  OverheadMeter meter(engine, options);
  LoadClient client(server->port(), "/v1/chat/completions",
                    [&](size_t stream, std::string_view event, Clock::time_point now) {
                      if (!meter.take(stream, event, now)) client.stop();
                    });
  GANNET_TRY_STATUS(client.run(overhead_streams(options, tokens)));
  return meter.result();
}

std::string overhead_report(const Options& options, const Overhead& found) {
  const auto tokens = static_cast<double>(found.tokens);
  if (options.json) {
    const ordered_json json = {{"processor", processor_name()},
                               {"streams", options.streams},
                               {"tokens_per_second_of_a_stream", options.pace},
                               {"lockstep", options.lockstep},
                               {"seconds", found.seconds},
                               {"tokens", found.tokens},
                               {"events", found.events},
                               {"tokens_per_second", tokens / found.seconds},
                               {"tokens_per_second_of_a_core", tokens / found.server_cpu},
                               {"server_cpu_s", found.server_cpu},
                               {"client_cpu_s", found.client_cpu},
                               {"latency_p50_s", quantile(found.latency, 0.5)},
                               {"latency_p99_s", quantile(found.latency, 0.99)},
                               {"latency_max_s", quantile(found.latency, 1)}};
    return json.dump(2) + "\n";
  }
  return fmt::format(
      "{}. Chat completions over HTTP on this machine, from an engine that gives ids away at a fixed pace.\n"
      "{} streams of {:g} tokens/s each{}, {:.1f} s\n\n"
      "tokens/s                  {:>10.0f}   in {:.0f} events/s\n"
      "tokens/s of a core        {:>10.0f}   server, engine thread included: {:.1f} us of processor time a token\n"
      "clients                   {:>10.1f}   us of processor time a token\n"
      "added latency p50         {:>10.2f}   ms, from the engine's callback to the client's read\n"
      "added latency p99         {:>10.2f}   ms\n"
      "added latency worst       {:>10.2f}   ms\n",
      processor_name(), options.streams, options.pace, options.lockstep ? ", all at the same instant" : "",
      found.seconds, tokens / found.seconds, static_cast<double>(found.events) / found.seconds,
      tokens / found.server_cpu, found.server_cpu / tokens * 1e6, found.client_cpu / tokens * 1e6,
      quantile(found.latency, 0.5) * 1e3, quantile(found.latency, 0.99) * 1e3, quantile(found.latency, 1) * 1e3);
}

// ---- with a model

struct Throughput {
  int64_t concurrent = 0;
  int64_t requests = 0;
  int64_t tokens = 0;
  double seconds = 0;
  std::vector<double> first;  // seconds to the first token, sorted
  std::vector<double> gaps;   // seconds between two events of a stream, sorted
};

// Prompts that have nothing in common, so that the prefix cache helps none of them.
std::vector<LoadClient::Stream> model_streams(const Options& options, int64_t requests, int64_t vocab,
                                              std::mt19937_64& random) {
  std::uniform_int_distribution<int64_t> id(3, std::min<int64_t>(vocab, 256) - 1);
  std::vector<LoadClient::Stream> streams;
  for (int64_t number = 0; number < requests; ++number) {
    std::vector<int64_t> prompt(static_cast<size_t>(options.prompt_tokens));
    for (auto& token : prompt) token = id(random);
    const ordered_json body = {{"prompt", prompt},
                               {"max_tokens", options.max_tokens},
                               {"stream", true},
                               {"ignore_eos", true},
                               {"temperature", 0},
                               {"seed", number},
                               {"stream_options", {{"include_usage", true}}}};
    streams.push_back({body.dump(), {}});
  }
  return streams;
}

Result<Throughput> measure_throughput(const Options& options, uint16_t port, int64_t concurrent, int64_t vocab,
                                      std::mt19937_64& random) {
  Throughput found;
  found.concurrent = concurrent;
  found.requests = concurrent * options.requests;
  const auto streams = model_streams(options, found.requests, vocab, random);
  std::vector<Clock::time_point> last(streams.size());
  std::vector<bool> begun(streams.size());
  const auto begin = Clock::now();
  LoadClient client(port, "/v1/completions", [&](size_t stream, std::string_view event, Clock::time_point now) {
    constexpr std::string_view kTokens = R"("completion_tokens":)";
    if (const auto at = event.find(kTokens); at != std::string_view::npos) {
      found.tokens += std::atoll(event.data() + at + kTokens.size());
    }
    if (!event.starts_with('{')) return;
    (begun[stream] ? found.gaps : found.first).push_back(seconds_of(now - (begun[stream] ? last[stream] : begin)));
    begun[stream] = true;
    last[stream] = now;
  });
  GANNET_TRY_STATUS(client.run(streams, static_cast<size_t>(concurrent)));
  found.seconds = seconds_of(Clock::now() - begin);
  std::sort(found.first.begin(), found.first.end());
  std::sort(found.gaps.begin(), found.gaps.end());
  return found;
}

std::string throughput_report(const Options& options, const std::vector<Throughput>& results) {
  const auto speed = [](const Throughput& found) { return static_cast<double>(found.tokens) / found.seconds; };
  if (options.json) {
    ordered_json list = ordered_json::array();
    for (const auto& found : results) {
      list.push_back({{"concurrent", found.concurrent},
                      {"requests", found.requests},
                      {"tokens", found.tokens},
                      {"seconds", found.seconds},
                      {"tokens_per_second", speed(found)},
                      {"gap_p50_s", quantile(found.gaps, 0.5)},
                      {"gap_p99_s", quantile(found.gaps, 0.99)}});
    }
    const ordered_json json = {{"processor", processor_name()},
                               {"model", options.model},
                               {"threads", options.engine.threads > 0 ? options.engine.threads : usable_processors()},
                               {"prompt_tokens", options.prompt_tokens},
                               {"max_tokens", options.max_tokens},
                               {"max_num_batched_tokens", options.engine.max_num_batched_tokens},
                               {"results", list}};
    return json.dump(2) + "\n";
  }
  std::string text = fmt::format(
      "{}. {} over HTTP on this machine: prompts of {} tokens, answers of {}, no prefix in common.\n\n"
      "{:>10} {:>9} {:>9} {:>10} {:>8} {:>12} {:>12}\n",
      processor_name(), options.model, options.prompt_tokens, options.max_tokens, "concurrent", "requests", "seconds",
      "tokens/s", "times 1", "gap p50 ms", "gap p99 ms");
  for (const auto& found : results) {
    fmt::format_to(std::back_inserter(text), "{:>10} {:>9} {:>9.2f} {:>10.1f} {:>8.2f} {:>12.2f} {:>12.2f}\n",
                   found.concurrent, found.requests, found.seconds, speed(found), speed(found) / speed(results.front()),
                   quantile(found.gaps, 0.5) * 1e3, quantile(found.gaps, 0.99) * 1e3);
  }
  return text;
}

Result<std::vector<Throughput>> measure_model(const Options& options) {
  GANNET_TRY(const server::ModelSession session, open_session(options.model, options.engine));
  server::ServedModel model;
  model.names = {session.name};
  model.tokenizer = session.tokenizer.get();
  model.engine = session.engine.get();
  GANNET_TRY(const auto server, BenchServer::start(std::move(model)));
  std::mt19937_64 random(1);
  const int64_t vocab = session.config.vocab_size;
  GANNET_TRY_STATUS(measure_throughput(options, server->port(), 1, vocab, random));  // warms up
  std::vector<Throughput> results;
  for (const int64_t concurrent : {1, 2, 4, 8, 16}) {
    GANNET_TRY(auto found, measure_throughput(options, server->port(), concurrent, vocab, random));
    results.push_back(std::move(found));
  }
  return results;
}

Status bench_serve(const Options& options) {
  start_logging("warning");  // a line for each request would be measured, too
  if (!options.model.empty()) {
    GANNET_TRY(const auto results, measure_model(options));
    return write_output(throughput_report(options, results));
  }
  GANNET_TRY(const Overhead found, measure_overhead(options));
  return write_output(overhead_report(options, found));
}

}  // namespace

void add_bench_serve(Command& bench) {
  static Options options;
  auto command = bench.subcommand("serve", "The server: its own cost without MODEL, or MODEL's throughput through it");
  command.optional_positional("MODEL", options.model, "Checkpoint directory, or the name of one under models/");
  command.flag("--json", options.json, "Machine-readable");
  command.option("--streams", options.streams, 1, 10'000, "Without MODEL: streams at once");
  command.option("--pace", options.pace, 0.1, 1000, "Without MODEL: tokens per second of each stream");
  command.option("--seconds", options.seconds, 1, 600, "Without MODEL: how long to measure, about");
  command.flag("--lockstep", options.lockstep, "Without MODEL: all streams get their tokens at the same instant");
  command.option("--prompt-tokens", options.prompt_tokens, 1, 1'000'000, "With MODEL: of each request");
  command.option("--max-tokens", options.max_tokens, 1, 1'000'000, "With MODEL: generated for each request");
  command.option("--requests", options.requests, 1, 1000, "With MODEL: one after another, for each concurrent one");
  add_model_options(command, options.engine);
  add_scheduler_options(command, options.engine);
  command.example("gannet bench serve nano");
  command.action([] { return bench_serve(options); });
}

}  // namespace gannet::cli
