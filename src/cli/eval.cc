#include <algorithm>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <limits>
#include <mutex>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/device.h"
#include "base/log.h"
#include "base/mapped_file.h"
#include "cli/command.h"
#include "cli/eval_tasks.h"
#include "cli/model_options.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "text/chat_encoder.h"

namespace gannet::cli {
namespace {

using Clock = std::chrono::steady_clock;
using nlohmann::ordered_json;

constexpr auto kPollInterval = std::chrono::milliseconds(100);

struct EvalOptions {
  std::string model;
  std::optional<std::string> tasks;
  std::vector<std::string> families;
  std::optional<int64_t> limit;
  std::string thinking = "both";
  double temperature = 0;
  int64_t seed = 0;
  int64_t max_tokens = 1024;
  int64_t max_concurrency = 16;
  bool json = false;
  std::optional<std::string> answers;
  std::string act_quant = "on";
  ModelOptions engine;
};

// A task in one mode, ready for the engine.
struct Question {
  const EvalTask* task;
  std::vector<int32_t> prompt;
  text::ParseOptions parse;
};

struct Round {
  std::string family;
  bool thinking;
  std::vector<Question> questions;
};

struct Score {
  int64_t right = 0;
  int64_t count = 0;

  double share() const { return static_cast<double>(right) / static_cast<double>(count); }
  double standard_error() const { return std::sqrt(share() * (1 - share()) / static_cast<double>(count)); }
  void add(bool is_right) {
    right += is_right ? 1 : 0;
    ++count;
  }
};

struct RoundResult {
  std::string family;
  bool thinking = false;
  Score all;
  std::vector<std::pair<std::string, Score>> sets;  // in the file's order
  int64_t prompt_tokens = 0;
  int64_t answer_tokens = 0;
  double seconds = 0;
  std::string answers;  // JSON lines, one for each question

  double speed() const { return static_cast<double>(answer_tokens) / seconds; }
  Score& of_set(const std::string& name) {
    const auto known = std::find_if(sets.begin(), sets.end(), [&name](const auto& set) { return set.first == name; });
    return known != sets.end() ? known->second : sets.emplace_back(name, Score()).second;
  }
};

struct Answer {
  std::vector<int32_t> ids;
  std::optional<Result<FinishReason>> end;
};

// What the engine's thread writes and the waiting one reads. Requests share it, so that it outlives them all.
struct Answers {
  explicit Answers(size_t count) : list(count) {}

  std::mutex mutex;
  std::condition_variable ended;
  size_t done = 0;
  std::vector<Answer> list;
};

Result<std::vector<std::string>> chosen_families(const EvalOptions& options, const std::filesystem::path& folder) {
  GANNET_TRY(auto known, eval_families(folder));
  for (const auto& name : options.families) {
    if (std::find(known.begin(), known.end(), name) == known.end()) {
      return invalid_input("--family is '{}'; it must be one of {}", name, fmt::join(known, ", "));
    }
  }
  return options.families.empty() ? known : options.families;
}

Result<Round> make_round(const EvalFamily& family, bool thinking, const text::Tokenizer& tokenizer) {
  Round round{.family = family.name, .thinking = thinking, .questions = {}};
  for (const EvalTask& task : family.tasks) {
    text::ChatRequest request = task.request;
    request.thinking = thinking;
    GANNET_TRY(auto prompt, text::encode_chat(request, tokenizer));
    round.questions.push_back({&task, std::move(prompt), text::parse_options(request)});
  }
  return round;
}

Result<std::vector<Round>> make_rounds(const EvalOptions& options, const std::vector<EvalFamily>& families,
                                       const text::Tokenizer& tokenizer) {
  std::vector<Round> rounds;
  for (const EvalFamily& family : families) {
    for (const bool thinking : {false, true}) {
      if (options.thinking == (thinking ? "off" : "on")) continue;
      GANNET_TRY(rounds.emplace_back(), make_round(family, thinking, tokenizer));
    }
  }
  return rounds;
}

// Room for the longest task rather than for the longest request that the model could take. A prompt that is found in
// the prefix cache can get another answer with bounded replay, and what is found depends on the time; so there is none.
ModelOptions fitting_options(const EvalOptions& options, const Config& config, const std::vector<Round>& rounds) {
  size_t longest = 0;
  for (const Round& round : rounds) {
    for (const Question& question : round.questions) longest = std::max(longest, question.prompt.size());
  }
  ModelOptions fitting = options.engine;
  fitting.max_num_seqs = options.max_concurrency;
  fitting.enable_prefix_caching = false;
  const int64_t wanted = static_cast<int64_t>(longest) + options.max_tokens;
  if (!fitting.max_model_len) fitting.max_model_len = std::min(wanted, config.max_position_embeddings);
  return fitting;
}

Status ask(Engine& engine, const EvalOptions& options, const Question& question, size_t number,
           const std::shared_ptr<Answers>& answers) {
  const int64_t room = engine.max_model_len() - static_cast<int64_t>(question.prompt.size());
  if (room < 1) {
    return invalid_input("a prompt of the set '{}' has {} tokens; with at least one of answer it must fit into {}",
                         question.task->set, question.prompt.size(), engine.max_model_len());
  }
  Request request;
  request.prompt = question.prompt;
  request.sampling.temperature = options.temperature;
  request.sampling.seed = static_cast<uint64_t>(options.seed);
  request.sampling.max_tokens = std::min(room, options.max_tokens);
  request.sampling.stop_ids = {static_cast<int32_t>(engine.config().eos_token_id)};
  request.on_token = [answers, number](const Token& token) { answers->list[number].ids.push_back(token.id); };
  request.on_end = [answers, number](Result<FinishReason> end) {
    const std::lock_guard lock(answers->mutex);
    answers->list[number].end = std::move(end);
    ++answers->done;
    answers->ended.notify_one();
  };
  GANNET_TRY_STATUS(engine.submit(std::move(request)));
  return {};
}

text::ParsedMessage message_of(const Question& question, const Answer& answer, const text::Tokenizer& tokenizer) {
  text::TokenMessageParser parser(tokenizer, question.parse);
  for (const int32_t id : answer.ids) parser.push(id);
  parser.finish(**answer.end == FinishReason::length ? text::StopCause::length : text::StopCause::stop);
  return parser.message();
}

std::string answer_line(const Round& round, size_t number, const text::ParsedMessage& message, bool right) {
  ordered_json calls = ordered_json::array();
  for (const auto& call : message.tool_calls) calls.push_back({{"name", call.name}, {"arguments", call.arguments}});
  const ordered_json line = {{"family", round.family},
                             {"thinking", round.thinking},
                             {"number", number + 1},
                             {"set", round.questions[number].task->set},
                             {"right", right},
                             {"reasoning", message.reasoning},
                             {"content", message.content},
                             {"calls", std::move(calls)}};
  return line.dump(-1, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

class Evaluation {
 public:
  Evaluation(const EvalOptions& options, const server::ModelSession& session, size_t questions)
      : options_(options), session_(session), questions_(static_cast<int64_t>(questions)) {}

  Result<RoundResult> run(const Round& round) {
    const auto answers = std::make_shared<Answers>(round.questions.size());
    const auto begin = Clock::now();
    GANNET_TRY_STATUS(ask_all(round, answers));
    RoundResult result;
    result.family = round.family;
    result.thinking = round.thinking;
    result.seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    for (size_t number = 0; number < answers->list.size(); ++number) {
      const Question& question = round.questions[number];
      const Answer& answer = answers->list[number];
      if (!*answer.end) return tl::unexpected(answer.end->error());
      const text::ParsedMessage message = message_of(question, answer, *session_.tokenizer);
      const bool right = question.task->judge.accepts(message);
      result.answers += answer_line(round, number, message, right);
      result.all.add(right);
      result.of_set(question.task->set).add(right);
      result.prompt_tokens += static_cast<int64_t>(question.prompt.size());
      result.answer_tokens += static_cast<int64_t>(answer.ids.size());
    }
    asked_before_ += static_cast<int64_t>(round.questions.size());
    return result;
  }

 private:
  // Keeps --max-concurrency requests in the engine until all have ended.
  Status ask_all(const Round& round, const std::shared_ptr<Answers>& answers) {
    const auto most = static_cast<size_t>(options_.max_concurrency);
    size_t asked = 0;
    size_t done = 0;
    while (done < round.questions.size()) {
      for (; asked < round.questions.size() && asked - done < most; ++asked) {
        GANNET_TRY_STATUS(ask(*session_.engine, options_, round.questions[asked], asked, answers));
      }
      std::unique_lock lock(answers->mutex);
      answers->ended.wait_for(lock, kPollInterval, [&] { return answers->done > done; });
      const bool waited_in_vain = answers->done == done;
      done = answers->done;
      lock.unlock();
      if (waited_in_vain) GANNET_TRY_STATUS(session_.engine->health());
      progress_(asked_before_ + static_cast<int64_t>(done), questions_);
    }
    return {};
  }

  const EvalOptions& options_;
  const server::ModelSession& session_;
  int64_t questions_;
  int64_t asked_before_ = 0;
  ProgressLine progress_{"answers"};
};

ordered_json as_json(const Score& score) {
  return {{"n", score.count},
          {"right", score.right},
          {"accuracy", score.share()},
          {"standard_error", score.standard_error()}};
}

std::string json_report(const EvalOptions& options, const std::vector<RoundResult>& results) {
  ordered_json families = ordered_json::array();
  for (const RoundResult& result : results) {
    ordered_json family = {{"family", result.family}, {"thinking", result.thinking}};
    family.update(as_json(result.all));
    family["prompt_tokens"] = result.prompt_tokens;
    family["answer_tokens"] = result.answer_tokens;
    family["seconds"] = result.seconds;
    family["tokens_per_second"] = result.speed();
    family["sets"] = ordered_json::array();
    for (const auto& [name, score] : result.sets) {
      ordered_json set = {{"set", name}};
      set.update(as_json(score));
      family["sets"].push_back(std::move(set));
    }
    families.push_back(std::move(family));
  }
  const ordered_json report = {{"model", options.model},
                               {"device", options.engine.device},
                               {"processor", processor_name()},
                               {"swa_bounded_replay", options.engine.swa_bounded_replay},
                               {"activations", options.engine.activations},
                               {"act_quant", options.act_quant},
                               {"temperature", options.temperature},
                               {"seed", options.seed},
                               {"families", std::move(families)}};
  return report.dump(2) + "\n";
}

std::string table_report(const EvalOptions& options, const std::vector<RoundResult>& results) {
  std::string text = fmt::format(
      "{} on {}, {}, bounded replay {}, {} activations, Q8 {}; up to {} answers at once.\n"
      "± is the binomial standard error; tokens/s counts generated ones, the time of the prompts included.\n\n"
      "{:<12}{:<40}{:<10}{:>5}{:>9}{:>7}{:>10}\n",
      options.model, options.engine.device == "cuda" ? "the first GPU" : processor_name(),
      options.temperature == 0 ? "greedy" : fmt::format("temperature {}, seed {}", options.temperature, options.seed),
      options.engine.swa_bounded_replay ? "on" : "off", options.engine.activations, options.act_quant,
      options.max_concurrency, "family", "set", "thinking", "n", "right %", "±", "tokens/s");
  const auto add = [&text](std::string_view family, std::string_view set, bool thinking, const Score& score) {
    fmt::format_to(std::back_inserter(text), "{:<12}{:<40}{:<10}{:>5}{:>9.1f}{:>7.1f}", family, set,
                   thinking ? "on" : "off", score.count, 100 * score.share(), 100 * score.standard_error());
  };
  for (const RoundResult& result : results) {
    add(result.family, "all", result.thinking, result.all);
    text += fmt::format("{:>10.0f}\n", result.speed());
    for (const auto& [name, score] : result.sets) {
      add("", name, result.thinking, score);
      text += "\n";
    }
  }
  return text;
}

Status write_answers(const std::string& path, const std::vector<RoundResult>& results) {
  std::string lines;
  for (const RoundResult& result : results) lines += result.answers;
  return write_file(path, std::as_bytes(std::span(lines)));
}

Status eval(const EvalOptions& options) {
  start_logging("warning");
  GANNET_TRY(server::ModelFacts facts, server::read_model(options.model));
  const std::filesystem::path folder = options.tasks ? std::filesystem::path(*options.tasks) : facts.directory / "eval";
  GANNET_TRY(const auto names, chosen_families(options, folder));
  const auto limit = static_cast<size_t>(options.limit.value_or(std::numeric_limits<int64_t>::max()));
  std::vector<EvalFamily> families;
  for (const auto& name : names) {
    GANNET_TRY(families.emplace_back(), read_eval_family(folder, name, limit, *facts.tokenizer));
  }
  GANNET_TRY(const auto rounds, make_rounds(options, families, *facts.tokenizer));
  size_t questions = 0;
  for (const Round& round : rounds) questions += round.questions.size();

  GANNET_TRY(EngineOptions engine, engine_options(fitting_options(options, facts.config, rounds), facts.config));
  engine.quantize_activations = options.act_quant == "on";
  if (options.answers) GANNET_TRY_STATUS(write_file(*options.answers, {}));  // rather now than after all the work
  GANNET_TRY(const server::ModelSession session, server::open_model(std::move(facts), std::move(engine)));
  Evaluation evaluation(options, session, questions);
  std::vector<RoundResult> results;
  for (const Round& round : rounds) {
    GANNET_TRY(results.emplace_back(), evaluation.run(round));
  }
  GANNET_TRY_STATUS(write_output(options.json ? json_report(options, results) : table_report(options, results)));
  return options.answers ? write_answers(*options.answers, results) : Status{};
}

}  // namespace

void add_eval(Command& root) {
  static EvalOptions options;
  Command command = root.subcommand("eval", "Answer tasks whose right answers are known, and count");
  command.positional("MODEL", options.model, "Checkpoint directory, or the name of one under models/");
  command.option("--tasks", options.tasks, "Folder of FAMILY.jsonl; default: the model's own, MODEL/eval");
  command.option("--family", options.families, "Only this family of tasks; may be given several times");
  command.option("--limit", options.limit, 1, INT32_MAX, "Only the first tasks of each family; default: all");
  command.choice("--thinking", options.thinking, {"on", "off", "both"}, "Whether the model reasons before it answers");
  command.option("--temperature", options.temperature, 0, 2, "0 takes the likeliest token each time");
  command.option("--seed", options.seed, 0, INT64_MAX, "With a temperature: the same seed gives the same answers");
  command.option("--max-tokens", options.max_tokens, 1, INT32_MAX, "Most tokens of an answer, reasoning included");
  command.option("--max-concurrency", options.max_concurrency, 1, 512, "Requests that run at once");
  command.flag("--json", options.json, "Machine-readable");
  command.option("--answers", options.answers, "File for every answer and whether it is right, a JSON line each");
  add_model_options(command, options.engine);
  command.choice("--act-quant", options.act_quant, {"on", "off"}, "FP8 rounding in front of FP8 and FP4 linears");
  command.example("gannet eval nano --family recall --thinking off");
  command.action([] { return eval(options); });
}

}  // namespace gannet::cli
