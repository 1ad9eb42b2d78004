#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <utility>

#include "base/device.h"
#include "base/log.h"
#include "base/version.h"
#include "cli/command.h"
#include "cli/model_options.h"
#include "server/api_server.h"
#include "server/http_server.h"

namespace gannet::cli {
namespace {

constexpr auto kWorkerPatience = std::chrono::seconds(2);  // for requests still being read when the server ends

struct ServeOptions {
  std::string model;
  std::string host = "127.0.0.1";
  int64_t port = 8000;
  std::vector<std::string> served_model_names;
  std::optional<std::string> api_key;
  std::string default_thinking = "on";
  std::optional<int64_t> default_effort;
  int64_t drain_timeout = 30;
  std::string log_level = "info";
  ModelOptions engine;
};

Status check(const ServeOptions& options) {
  if (options.api_key && options.api_key->empty()) {
    return invalid_input("--api-key is empty; leave the option out to let everybody in");
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

void print_plan(const server::ModelFacts& facts, const EngineOptions& engine, const std::vector<std::string>& names,
                const std::string& thinking) {
  const Config& config = facts.config;
  const int64_t context = engine.max_model_len > 0 ? engine.max_model_len : config.max_position_embeddings;
  const int threads = engine.threads > 0 ? engine.threads : usable_processors();
  fmt::print(stderr, "gannet {} serves {}\n", kVersion, fmt::join(names, ", "));
  fmt::print(stderr, "  model       {}: {} layers, hidden size {}, {} experts of which {} work on a token\n",
             facts.directory.string(), config.num_hidden_layers, config.hidden_size, config.n_routed_experts,
             config.num_experts_per_tok);
  fmt::print(stderr, "  weights     {}, mapped\n", bytes_text(static_cast<double>(facts.weight_bytes)));
  fmt::print(stderr, "  KV cache    {:g} bytes a token of context ({} for a full one), {} of window a request\n",
             facts.kv_bytes_per_token, bytes_text(facts.kv_bytes_per_token * static_cast<double>(context)),
             bytes_text(static_cast<double>(facts.window_bytes)));
  fmt::print(stderr, "  context     {} tokens, prompt and answer together; bounded replay {}\n", context,
             engine.swa_bounded_replay ? "on" : "off");
  fmt::print(stderr, "  processor   {} threads, {}\n", threads, name_of(detect_simd()));
  fmt::print(stderr, "  thinking    {} unless a request says otherwise\n", thinking);
}

text::ConversionOptions conversion_options(const ServeOptions& options) {
  text::ConversionOptions conversion;
  conversion.default_thinking = options.default_thinking == "on";
  if (options.default_effort) conversion.default_effort = static_cast<int>(*options.default_effort);
  return conversion;
}

Result<std::unique_ptr<server::HttpServer>> listen(const ServeOptions& options, const server::ApiServer& api) {
  server::HttpServerOptions http;
  http.host = options.host;
  http.port = static_cast<uint16_t>(options.port);
  auto listening = server::HttpServer::listen(
      std::move(http), [&api](const server::HttpRequest& request) { return api.handle(request); },
      server::ApiServer::error_page);
  if (listening) return listening;
  return failed("{}; --host and --port choose another address", listening.error().message);
}

// Ends the server and its thread, whatever happens to the model.
class RunningServer {
 public:
  explicit RunningServer(server::HttpServer& server) : server_(server), thread_([&server] { server.run(); }) {}
  ~RunningServer() {
    server_.stop();
    if (thread_.joinable()) thread_.join();
  }
  RunningServer(const RunningServer&) = delete;
  RunningServer& operator=(const RunningServer&) = delete;
  void wait() { thread_.join(); }

 private:
  server::HttpServer& server_;
  std::thread thread_;
};

Status serve(const ServeOptions& options) {
  start_logging(options.log_level);
  GANNET_TRY_STATUS(check(options));
  GANNET_TRY(server::ModelFacts facts, server::read_model(options.model));
  GANNET_TRY(const EngineOptions engine, engine_options(options.engine, facts.config));
  std::vector<std::string> names = options.served_model_names;
  if (names.empty()) names.push_back(facts.name);

  // The address is taken before the model is loaded: a port in use shows at once, and /live answers meanwhile. What is
  // declared first lives longest: the server's connections use the model to the end.
  server::ModelSession session;
  server::ServedModel model;
  server::ApiServer api(options.api_key.value_or(""));
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
  model.names = std::move(names);
  model.tokenizer = session.tokenizer.get();
  model.engine = session.engine.get();
  model.conversion = conversion_options(options);
  model.created =
      std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
  api.start_serving(model);
  loading = false;
  const std::chrono::duration<double> time = std::chrono::steady_clock::now() - begin;
  fmt::print(stderr, "ready after {:.1f} s at {}/v1\n", time.count(), http->url());
  running.wait();
  if (!http->finish_workers(kWorkerPatience)) {
    spdlog::warn("a request is still being read; stopped without waiting for it");
    std::_Exit(EXIT_FAILURE);
  }
  spdlog::info("stopped");
  return {};
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
  command.option("--api-key", options.api_key, "Refuse requests to /v1 without this key");
  command.choice("--default-thinking", options.default_thinking, {"on", "off"}, "When a request does not say");
  command.option("--default-effort", options.default_effort, 1, 100, "Reasoning effort when a request does not say");
  command.option("--drain-timeout", options.drain_timeout, 0, 86400, "Seconds that SIGTERM leaves running requests");
  command.choice("--log-level", options.log_level, {"trace", "debug", "info", "warning", "error", "off"},
                 "Least important lines to log");
  add_model_options(command, options.engine);
  command.example("gannet serve nano --port 8000");
  command.action([] { return serve(options); });
}

}  // namespace gannet::cli
