#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <future>
#include <thread>
#include <utility>

#include "base/cuda.h"
#include "base/device.h"
#include "base/log_context.h"
#include "base/version.h"
#include "cli/command.h"
#include "cli/model_options.h"
#include "engine/loaded_model.h"
#include "server/api_server.h"
#include "server/http_server.h"
#include "server/stall_watch.h"
#include "server/tls.h"

namespace gannet::cli {
namespace {

constexpr auto kHealthInterval = std::chrono::seconds(1);
constexpr auto kStallPatience = std::chrono::seconds(60);  // without a step, before the log says so
constexpr auto kFailedDrain = std::chrono::seconds(2);     // for clients to read what went wrong
constexpr auto kWorkerPatience = std::chrono::seconds(2);  // for requests still being read when the server ends

struct ServeOptions {
  std::string model;
  std::string host = "127.0.0.1";
  int64_t port = 8000;
  std::vector<std::string> served_model_names;
  std::vector<std::string> api_keys;
  std::optional<std::string> certificate;
  std::optional<std::string> key;
  std::vector<std::string> allowed_origins;
  std::vector<std::string> allowed_hosts;
  int64_t rate_limit = 0;
  bool allow_priority = false;
  int64_t max_request_bytes = 32 << 20;
  int64_t request_timeout = 0;
  int64_t keep_alive_interval = 5;
  std::string default_thinking = "on";
  std::optional<int64_t> default_effort;
  int64_t drain_timeout = 30;
  std::string log_level = "info";
  std::string log_format = "text";
  ModelOptions engine;
};

Status check(const ServeOptions& options) {
  for (const auto& key : options.api_keys) {
    if (key.empty()) return invalid_input("--api-key is empty; leave the option out to let everybody in");
  }
  if (options.certificate.has_value() != options.key.has_value()) {
    return invalid_input("{} is missing; TLS needs --ssl-certfile and --ssl-keyfile",
                         options.key ? "--ssl-certfile" : "--ssl-keyfile");
  }
  for (const auto& origin : options.allowed_origins) {
    const bool whole = origin == "*" || (origin.find("://") != std::string::npos && origin.back() != '/');
    if (!whole) {
      return invalid_input("--allowed-origins is {}; an origin looks like https://example.org, and * stands for all",
                           origin);
    }
  }
  for (const auto& host : options.allowed_hosts) {
    const bool is_name = !host.empty() && host.find('/') == std::string::npos &&
                         (host.find(':') == std::string::npos || (host.front() == '[' && host.back() == ']'));
    if (!is_name) {
      return invalid_input("--allowed-hosts is {}; a host is a name without scheme and port, and * stands for all",
                           host);
    }
  }
  for (const auto& name : options.served_model_names) {
    if (name.empty()) return invalid_input("--served-model-name is empty; it must have at least one character");
    GANNET_TRY_STATUS(check_utf8(name, "--served-model-name"));
  }
  return {};
}

std::string bytes_text(double bytes) {
  constexpr double kStep = 1024;
  const char* const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
  size_t unit = 0;
  while (bytes >= kStep && unit + 1 < std::size(units)) {
    bytes /= kStep;
    ++unit;
  }
  return unit == 0 ? fmt::format("{:.0f} bytes", bytes) : fmt::format("{:.1f} {}", bytes, units[unit]);
}

std::string prefix_text(const EngineOptions& engine, const Config& config) {
  if (!engine.enable_prefix_caching) return "not cached";
  const int64_t replayed = engine.swa_bounded_replay ? config.sliding_window : 0;
  return fmt::format("cached; hits are whole blocks of {} tokens, {} tokens or more", kBlockTokens,
                     (replayed / kBlockTokens + 1) * kBlockTokens);
}

void print_plan(const server::ModelFacts& facts, const EngineOptions& engine, const std::vector<std::string>& names,
                const std::string& thinking) {
  const Config& config = facts.config;
  const int64_t context = engine.max_model_len > 0 ? engine.max_model_len : config.max_position_embeddings;
  const int threads = engine.threads > 0 ? engine.threads : usable_processors();
  fmt::print(stderr, "gannet {} serves {}\n", kVersion, fmt::join(names, ", "));
  fmt::print(stderr, "  model       {}: {} layers, hidden size {}, {} experts of which {} work on a token\n",
             facts.directory.string(), config.num_hidden_layers, config.hidden_size, config.n_routed_experts,
             config.num_experts_per_tok);
  fmt::print(stderr, "  weights     {}, {}\n", bytes_text(static_cast<double>(facts.weight_bytes)),
             engine.cuda ? "to be packed into the GPU's memory" : "mapped");
  fmt::print(stderr, "  KV cache    {:g} bytes a token of context ({} for a full one), {} of window a request\n",
             facts.kv_bytes_per_token, bytes_text(facts.kv_bytes_per_token * static_cast<double>(context)),
             bytes_text(static_cast<double>(facts.window_bytes)));
  fmt::print(stderr, "  context     {} tokens, prompt and answer together; bounded replay {}\n", context,
             engine.swa_bounded_replay ? "on" : "off");
  fmt::print(stderr, "  prefixes    {}\n", prefix_text(engine, config));
  if (engine.cuda) fmt::print(stderr, "  GPU         {}\n", cuda_support().usable);
  fmt::print(stderr, "  processor   {} threads, {}\n", threads, name_of(detect_simd()));
  fmt::print(stderr, "  thinking    {} unless a request says otherwise\n", thinking);
}

text::ConversionOptions conversion_options(const ServeOptions& options) {
  text::ConversionOptions conversion;
  conversion.default_thinking = options.default_thinking == "on";
  if (options.default_effort) conversion.default_effort = static_cast<int>(*options.default_effort);
  return conversion;
}

// The keys of the command line, or the one of the environment, which other users of the machine cannot see.
std::vector<std::string> api_keys(const ServeOptions& options) {
  if (!options.api_keys.empty()) return options.api_keys;
  const char* key = std::getenv("GANNET_API_KEY");
  if (key == nullptr || *key == '\0') return {};
  return {key};
}

Result<std::unique_ptr<server::HttpServer>> listen(const ServeOptions& options, server::ApiServer& api) {
  server::HttpServerOptions http;
  http.host = options.host;
  http.port = static_cast<uint16_t>(options.port);
  http.body_limit = static_cast<size_t>(options.max_request_bytes);
  http.keep_alive_interval = std::chrono::seconds(options.keep_alive_interval);
  http.allowed_origins = options.allowed_origins;
  http.allowed_hosts = options.allowed_hosts;
  http.guards_loopback = !options.certificate && api_keys(options).empty();  // pages have neither name nor key
  http.gate = [&api](const server::HttpRequest& head) { return api.refuse(head); };
  if (options.certificate) {
    GANNET_TRY(http.tls, server::TlsContext::load(*options.certificate, *options.key));
  }
  auto listening = server::HttpServer::listen(
      std::move(http), [&api](const server::HttpRequest& request) { return api.handle(request); },
      server::ApiServer::error_page, [&api](const server::RequestRecord& record) { api.observe(record); });
  if (listening) return listening;
  return failed("{}; --host and --port choose another address", listening.error().message);
}

// Ends the server and its thread, whatever happens to the model.
class RunningServer {
 public:
  explicit RunningServer(server::HttpServer& server)
      : server_(server), thread_([this, &server] {
          server.run();
          ended_.set_value();
        }) {}
  ~RunningServer() {
    server_.stop();
    thread_.join();
  }
  RunningServer(const RunningServer&) = delete;
  RunningServer& operator=(const RunningServer&) = delete;
  // Whether it has ended within `patience`.
  bool wait_for(std::chrono::milliseconds patience) { return end_.wait_for(patience) == std::future_status::ready; }

 private:
  server::HttpServer& server_;
  std::promise<void> ended_;
  std::future<void> end_ = ended_.get_future();
  std::thread thread_;  // last: it uses everything above
};

// Returns when the server has ended. An engine that cannot run any more ends it with an error, so that whoever watches
// over the process starts it anew: a server that lives but cannot answer helps nobody.
Status watch(RunningServer& running, server::HttpServer& http, server::ApiServer& api, const Engine& engine) {
  server::StallWatch stall(kStallPatience);
  while (!running.wait_for(kHealthInterval)) {
    const auto stalled = stall.check(engine.stats(), engine.unfinished(), server::StallWatch::Clock::now());
    if (stalled) spdlog::warn("{}", *stalled);
    const Status health = engine.health();
    if (health) continue;
    spdlog::error("the engine has failed and the server ends: {}", health.error().message);
    api.stop_serving();
    http.drain(kFailedDrain);
    running.wait_for(2 * kFailedDrain);
    return health;
  }
  return {};
}

server::ServedModel served_model(const ServeOptions& options, const server::ModelSession& session,
                                 std::vector<std::string> names) {
  server::ServedModel model;
  model.names = std::move(names);
  model.tokenizer = session.tokenizer.get();
  model.engine = session.engine.get();
  model.conversion = conversion_options(options);
  model.created =
      std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
  model.max_unfinished = options.engine.max_waiting + options.engine.max_num_seqs;
  model.accepts_priority = options.allow_priority;
  model.request_timeout = std::chrono::seconds(options.request_timeout);
  model.make_constraint = server::make_constraint(session);
  return model;
}

Status serve(const ServeOptions& options) {
  start_logging(options.log_level, options.log_format == "json" ? LogFormat::json : LogFormat::text);
  GANNET_TRY_STATUS(check(options));
  GANNET_TRY(server::ModelFacts facts, server::read_model(options.model));
  GANNET_TRY(const EngineOptions engine, engine_options(options.engine, facts.config));
  std::vector<std::string> names = options.served_model_names;
  if (names.empty()) names.push_back(facts.name);

  // The address is taken before the model is loaded: a port in use shows at once, and /live answers meanwhile. What is
  // declared first lives longest: the server's connections use the model to the end.
  server::ModelSession session;
  server::ServedModel model;
  server::ApiServer api({.api_keys = api_keys(options), .requests_per_minute = options.rate_limit});
  GANNET_TRY(const auto http, listen(options, api));
  print_plan(facts, engine, names, options.default_thinking);

  std::atomic<bool> loading = true;
  const auto on_signal = [&api, &loading](int count) {
    if (loading) std::_Exit(EXIT_SUCCESS);  // nothing to lose, and loading cannot be interrupted
    api.stop_serving();
    spdlog::info(count == 1 ? "stopping when all requests are answered; a second signal stops at once" : "stopping");
  };
  http->drain_on_signals(std::chrono::seconds(options.drain_timeout), on_signal);
  RunningServer running(*http);

  const auto begin = std::chrono::steady_clock::now();
  GANNET_TRY(session, server::open_model(std::move(facts), engine));
  model = served_model(options, session, std::move(names));
  api.start_serving(model);
  loading = false;
  const std::chrono::duration<double> time = std::chrono::steady_clock::now() - begin;
  fmt::print(stderr, "ready after {:.1f} s at {}/v1\n", time.count(), http->url());
  GANNET_TRY_STATUS(watch(running, *http, api, *session.engine));
  if (!http->finish_workers(kWorkerPatience)) {
    spdlog::warn("a request is still being read; stopped without waiting for it");
    std::_Exit(EXIT_FAILURE);
  }
  spdlog::info("stopped");
  return {};
}

void add_http_options(Command& command, ServeOptions& options) {
  command.option("--api-key", options.api_keys,
                 "Refuse requests without this key; given once or more. Default: GANNET_API_KEY of the environment");
  command.option("--ssl-certfile", options.certificate, "PEM certificate, with its chain: serve HTTPS");
  command.option("--ssl-keyfile", options.key, "PEM key of the certificate");
  command.option("--allowed-origins", options.allowed_origins,
                 "Origin whose web pages may use the server, given once or more; * stands for all");
  command.option("--allowed-hosts", options.allowed_hosts,
                 "Name that requests may use for the server, given once or more; * stands for all. Default: "
                 "localhost, 127.0.0.1 and [::1] on a loopback address without TLS and keys, else all");
  command.option("--rate-limit", options.rate_limit, 0, 1'000'000,
                 "Requests per minute of one API key or address; 0: any number");
  command.flag("--allow-priority", options.allow_priority, "Serve requests in the order of their field priority");
  command.option("--max-request-bytes", options.max_request_bytes, 1024, int64_t{1} << 30, "Largest body of a request");
  command.option("--request-timeout", options.request_timeout, 0, 604'800, "Seconds that a request may take; 0: any");
  command.option("--keep-alive-interval", options.keep_alive_interval, 1, 3600,
                 "Seconds of silence after which a stream gets a comment");
  command.option("--drain-timeout", options.drain_timeout, 0, 86400, "Seconds that SIGTERM leaves running requests");
  command.choice("--log-level", options.log_level, {"trace", "debug", "info", "warning", "error", "off"},
                 "Least important lines to log");
  command.choice("--log-format", options.log_format, {"text", "json"}, "Lines for people, or objects for machines");
}

}  // namespace

void add_serve(Command& root) {
  static ServeOptions options;
  Command command = root.subcommand("serve", "Serve a model over HTTP, as OpenAI's API does");
  command.positional("MODEL", options.model, "Checkpoint directory, or the name of one under models/");
  command.option("--host", options.host, "Address or name to listen on; 0.0.0.0 takes all");
  command.option("--port", options.port, 0, 65535, "Port to listen on; 0 takes any free one");
  command.option(
      "--served-model-name", options.served_model_names,
      "Name that requests may use, given once or more; answers carry the first. Default: last part of MODEL");
  command.choice("--default-thinking", options.default_thinking, {"on", "off"}, "When a request does not say");
  command.option("--default-effort", options.default_effort, 1, 100, "Reasoning effort when a request does not say");
  add_http_options(command, options);
  add_model_options(command, options.engine);
  add_scheduler_options(command, options.engine);
  command.example("gannet serve nano --port 8000");
  command.action([] { return serve(options); });
}

}  // namespace gannet::cli
