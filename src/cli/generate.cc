#include <unistd.h>

#include <cstdio>
#include <iostream>
#include <iterator>
#include <utility>

#include "base/log.h"
#include "base/mapped_file.h"
#include "cli/command.h"
#include "cli/model_options.h"
#include "cli/terminal.h"
#include "server/answer.h"

namespace gannet::cli {
namespace {

constexpr auto kPollInterval = std::chrono::milliseconds(50);

struct GenerateOptions {
  std::string model;
  std::optional<std::string> prompt;
  std::optional<std::string> prompt_file;
  std::optional<int64_t> max_tokens;
  double temperature = 1;
  double top_p = 1;
  int64_t top_k = 0;
  std::optional<int64_t> seed;
  std::vector<std::string> stop;
  bool ignore_eos = false;
  ModelOptions engine;
};

Result<std::string> read_prompt(const GenerateOptions& options) {
  if (options.prompt && options.prompt_file) {
    return invalid_input("--prompt and --prompt-file are both given; only one may be");
  }
  std::string prompt;
  const char* name = "--prompt";
  if (options.prompt) {
    prompt = *options.prompt;
  } else if (options.prompt_file && *options.prompt_file != "-") {
    name = "--prompt-file";
    GANNET_TRY(prompt, read_file(*options.prompt_file));
  } else {
    name = "the prompt on standard input";
    if (::isatty(STDIN_FILENO) == 1) std::fputs("Prompt, ended by Ctrl-D:\n", stderr);
    prompt.assign(std::istreambuf_iterator<char>(std::cin), std::istreambuf_iterator<char>());
  }
  if (prompt.empty()) return invalid_input("{} is empty; it must have at least one character", name);
  GANNET_TRY_STATUS(check_utf8(prompt, name));
  return prompt;
}

Status check(const GenerateOptions& options) {
  if (options.top_p == 0) return invalid_input("--top-p is 0; it must be above 0 and at most 1");
  for (const auto& stop : options.stop) {
    if (stop.empty()) return invalid_input("--stop is empty; it must have at least one character");
  }
  return {};
}

Result<Request> make_request(const GenerateOptions& options, const std::string& prompt,
                             const server::ModelSession& session) {
  Request request;
  GANNET_TRY(request.prompt, session.tokenizer->encode(prompt));
  const int64_t room = session.engine->max_model_len() - static_cast<int64_t>(request.prompt.size());
  if (room < 1) {
    return invalid_input("the prompt has {} tokens; with at least one of answer it must fit into {}",
                         request.prompt.size(), session.engine->max_model_len());
  }
  SamplingParams& sampling = request.sampling;
  sampling.temperature = options.temperature;
  sampling.top_p = options.top_p;
  sampling.top_k = options.top_k;
  if (options.seed) sampling.seed = static_cast<uint64_t>(*options.seed);
  sampling.max_tokens = std::min(options.max_tokens.value_or(room), room);
  if (!options.ignore_eos) sampling.stop_ids = {session.config.eos_token_id};
  return request;
}

// Raw text for files and pipes, harmless text for a terminal.
void print(const std::vector<text::Delta>& deltas, bool to_terminal) {
  for (const auto& delta : deltas) {
    const std::string text = to_terminal ? printable(delta.text) : delta.text;
    std::fwrite(text.data(), 1, text.size(), stdout);
  }
  std::fflush(stdout);
}

Status generate(const GenerateOptions& options) {
  start_logging("warning");
  GANNET_TRY_STATUS(check(options));
  GANNET_TRY(const std::string prompt, read_prompt(options));
  GANNET_TRY(const server::ModelSession session, open_session(options.model, options.engine));
  GANNET_TRY(Request request, make_request(options, prompt, session));

  text::ParseOptions parse;
  parse.stop = options.stop;
  const bool to_terminal = ::isatty(STDOUT_FILENO) == 1;
  const InterruptGuard guard;
  const auto begin = std::chrono::steady_clock::now();
  GANNET_TRY(auto generation, server::Generation::start(*session.engine, std::move(request)));
  server::Answer answer(std::move(generation), text::TokenMessageParser(*session.tokenizer, parse), {});
  while (!answer.ended() && !InterruptGuard::interrupted()) {
    answer.generation().wait(kPollInterval);
    print(answer.advance().deltas, to_terminal);
    if (std::ferror(stdout) != 0) return failed("standard output cannot be written");
  }
  if (to_terminal) std::fputc('\n', stdout);
  if (answer.error()) return tl::unexpected(*answer.error());
  if (::isatty(STDERR_FILENO) == 1) {
    const std::chrono::duration<double> time = std::chrono::steady_clock::now() - begin;
    fmt::print(stderr, "[{} tokens, {:.1f} tokens/s]\n", answer.completion_tokens(),
               static_cast<double>(answer.completion_tokens()) / time.count());
  }
  return {};
}

}  // namespace

void add_generate(Command& root) {
  static GenerateOptions options;
  Command command = root.subcommand("generate", "Continue a text, as it is, without chat format");
  command.positional("MODEL", options.model, "Checkpoint directory, or the name of one under models/");
  command.option("--prompt", options.prompt, "The text to continue; spellings of control tokens become these tokens");
  command.option("--prompt-file", options.prompt_file, "A file with the text; - or neither option: standard input");
  command.option("--max-tokens", options.max_tokens, 1, INT32_MAX, "Most tokens to generate; default: what fits");
  command.option("--temperature", options.temperature, 0, 2, "0 takes the likeliest token each time");
  command.option("--top-p", options.top_p, 0, 1, "Sample among the likeliest tokens that have this probability");
  command.option("--top-k", options.top_k, 0, INT32_MAX, "Sample among that many likeliest tokens; 0: all");
  command.option("--seed", options.seed, 0, INT64_MAX, "The same seed gives the same text; default: random");
  command.option("--stop", options.stop, "End before this text; may be given several times");
  command.flag("--ignore-eos", options.ignore_eos, "Go on when the model ends its text");
  add_model_options(command, options.engine);
  command.example("gannet generate nano --prompt 'Once upon a time' --max-tokens 100 --seed 1");
  command.action([] { return generate(options); });
}

}  // namespace gannet::cli
