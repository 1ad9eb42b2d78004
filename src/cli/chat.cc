#include <chrono>
#include <clocale>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <utility>

#include "base/log.h"
#include "cli/command.h"
#include "cli/conversation.h"
#include "cli/line_editor.h"
#include "cli/model_options.h"
#include "cli/terminal.h"
#include "server/chat_client.h"
#include "server/http_client.h"
#include "server/served_model.h"

namespace gannet::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr const char* kHelp =
    "  /clear          forget the conversation\n"
    "  /system TEXT    set the system message (no TEXT: none)\n"
    "  /thinking HOW   on, off, minimal, low, medium, high, max or 1 to 100\n"
    "  /help           this list\n"
    "  /quit           leave (also Ctrl-D, or Ctrl-C twice)\n"
    "Ctrl-C stops an answer.\n";

struct ChatOptions {
  std::string model;
  std::optional<std::string> url;
  std::optional<std::string> api_key;
  std::string system;
  std::string thinking;
  double temperature = 1;
  std::optional<int64_t> max_tokens;
  std::optional<int64_t> seed;
  ModelOptions engine;
};

// How answers are shown: to a person at a terminal with colours, or plainly: the answer alone on standard output and
// all else on standard error.
class Screen {
 public:
  explicit Screen(bool interactive)
      : interactive_(interactive), colours_(interactive && std::getenv("NO_COLOR") == nullptr) {}

  bool interactive() const { return interactive_; }
  std::string prompt() const { return colours_ ? "\x1b[1;36m> \x1b[0m" : "> "; }

  void begin() {
    begin_ = Clock::now();
    first_.reset();
    in_reasoning_ = false;
  }
  void reasoning(std::string_view text) {
    note_first();
    if (!in_reasoning_ && colours_) std::fputs("\x1b[2m", stdout);
    in_reasoning_ = true;
    write(interactive_ ? stdout : stderr, text);
  }
  void content(std::string_view text) {
    note_first();
    end_reasoning();
    write(stdout, text);
  }
  void end(const server::ChatTurn& turn, bool stopped) {
    end_reasoning();
    if (turn.content.empty() || turn.content.back() != '\n') std::fputc('\n', stdout);
    std::fflush(stdout);
    const Clock::time_point first = first_.value_or(Clock::now());
    const double waited = seconds(first - begin_);
    const double spoke = seconds(Clock::now() - first);
    std::string note;
    if (stopped) {
      note = "stopped";
    } else {
      note = fmt::format("{} tokens, first after {:.2f} s", turn.completion_tokens, waited);
      // The first token's time belongs to the prompt.
      if (turn.completion_tokens > 1 && spoke > 0) {
        note += fmt::format(", then {:.1f} tokens/s", static_cast<double>(turn.completion_tokens - 1) / spoke);
      }
      if (turn.finish_reason == "length") note += ", cut off by the length limit";
    }
    say("[" + note + "]");
  }
  // A remark of the program's own.
  void say(const std::string& text) const {
    if (colours_) {
      fmt::print(stdout, "\x1b[2m{}\x1b[0m\n", text);
    } else {
      fmt::print(interactive_ ? stdout : stderr, "{}\n", text);
    }
    std::fflush(stdout);
  }

 private:
  static double seconds(Clock::duration time) { return std::chrono::duration<double>(time).count(); }
  void note_first() {
    if (!first_) first_ = Clock::now();
  }
  void end_reasoning() {
    if (!std::exchange(in_reasoning_, false)) return;
    if (colours_) std::fputs("\x1b[0m", stdout);
    std::fputs("\n\n", interactive_ ? stdout : stderr);
  }
  void write(std::FILE* file, std::string_view text) const {
    const std::string shown = interactive_ ? printable(text) : std::string(text);
    std::fwrite(shown.data(), 1, shown.size(), file);
    std::fflush(file);
  }

  bool interactive_;
  bool colours_;
  bool in_reasoning_ = false;
  Clock::time_point begin_;
  std::optional<Clock::time_point> first_;
};

class ChatProgram {
 public:
  ChatProgram(server::ChatBackend& backend, Conversation conversation, bool interactive)
      : backend_(backend), conversation_(std::move(conversation)), screen_(interactive) {}

  // An error only without a terminal: there nobody is to try again.
  Status run(const std::string& welcome) {
    if (!screen_.interactive()) return run_plain();
    screen_.say(welcome + "; /help lists the commands");
    bool leaving = false;
    for (;;) {
      std::string line;
      const auto result = editor_.read(screen_.prompt(), line);
      if (result == LineEditor::Result::end) return {};
      if (result == LineEditor::Result::interrupted) {
        if (std::exchange(leaving, true)) return {};
        screen_.say("Ctrl-C again to leave");
        continue;
      }
      leaving = false;
      if (line == "/quit" || line == "/exit") return {};
      if (line.find_first_not_of(" \t") == std::string::npos) continue;
      if (const auto status = take(line); !status) screen_.say(status.error().message);
    }
  }

 private:
  Status run_plain() {
    int64_t number = 0;
    for (std::string line; std::getline(std::cin, line);) {
      ++number;
      if (line.ends_with('\r')) line.pop_back();
      if (line.find_first_not_of(" \t") == std::string::npos) continue;
      if (line == "/quit" || line == "/exit") return {};
      GANNET_TRY_STATUS(check_utf8(line, fmt::format("line {} of standard input", number)));
      GANNET_TRY_STATUS(take(line));
      if (stopped_) return failed("stopped by Ctrl-C");
    }
    return {};
  }

  Status take(const std::string& line) { return line.starts_with('/') ? command(line) : ask(line); }

  Status command(const std::string& line) {
    const size_t space = line.find(' ');
    const std::string name = line.substr(0, space);
    const size_t begin = line.find_first_not_of(' ', space);
    const std::string argument = space == std::string::npos || begin == std::string::npos ? "" : line.substr(begin);
    if (name == "/help") {
      screen_.say(kHelp);
    } else if (name == "/clear") {
      conversation_.clear();
      screen_.say("forgotten");
    } else if (name == "/system") {
      conversation_.set_system(argument);
      screen_.say(argument.empty() ? "no system message" : "system message set");
    } else if (name == "/thinking") {
      GANNET_TRY_STATUS(conversation_.set_thinking(argument));
      screen_.say(argument.empty() ? "thinking as by default" : "thinking " + argument);
    } else {
      return invalid_input("there is no command {}; /help lists them", printable(name));
    }
    return {};
  }

  Status ask(const std::string& text) {
    screen_.begin();
    const InterruptGuard guard;
    server::ChatListener listener;
    listener.on_reasoning = [this](std::string_view piece) { screen_.reasoning(piece); };
    listener.on_content = [this](std::string_view piece) { screen_.content(piece); };
    listener.keep_going = [] { return !InterruptGuard::interrupted(); };
    GANNET_TRY(const server::ChatTurn turn, backend_.ask(conversation_.request(text), listener));
    stopped_ = InterruptGuard::interrupted();
    screen_.end(turn, stopped_);
    conversation_.add_turn(text, turn);
    return {};
  }

  server::ChatBackend& backend_;
  Conversation conversation_;
  Screen screen_;
  LineEditor editor_;
  bool stopped_ = false;
};

Status check(const ChatOptions& options) {
  if (options.model.empty() == !options.url.has_value()) {
    return invalid_input("give either MODEL or --url: MODEL runs in this process, --url talks to a running server");
  }
  GANNET_TRY_STATUS(check_utf8(options.system, "--system"));
  return check_thinking(options.thinking, "--thinking");
}

Conversation::Settings settings(const ChatOptions& options) {
  Conversation::Settings settings;
  settings.system = options.system;
  settings.thinking = options.thinking;
  settings.temperature = options.temperature;
  settings.max_tokens = options.max_tokens;
  settings.seed = options.seed;
  return settings;
}

Status chat_with_server(const ChatOptions& options) {
  GANNET_TRY(server::Url url, server::parse_url(*options.url));
  const std::string welcome = "talking to " + url.text();
  const auto backend = server::remote_chat(std::move(url), options.api_key.value_or(""));
  return ChatProgram(*backend, Conversation(settings(options)), is_interactive()).run(welcome);
}

Status chat_with_model(const ChatOptions& options) {
  GANNET_TRY(const server::ModelSession session, open_session(options.model, options.engine));
  server::ServedModel model;
  model.names = {session.name};
  model.tokenizer = session.tokenizer.get();
  model.engine = session.engine.get();
  model.make_constraint = server::make_constraint(session);
  const auto backend = server::local_chat(model);
  return ChatProgram(*backend, Conversation(settings(options)), is_interactive()).run("talking to " + session.name);
}

Status chat(const ChatOptions& options) {
  std::setlocale(LC_CTYPE, "");  // for the width of characters
  start_logging("warning");
  GANNET_TRY_STATUS(check(options));
  return options.url ? chat_with_server(options) : chat_with_model(options);
}

}  // namespace

void add_chat(Command& root) {
  static ChatOptions options;
  Command command = root.subcommand("chat", "Talk to a model in the terminal");
  command.optional_positional("MODEL", options.model, "Checkpoint directory, or the name of one under models/");
  command.option("--url", options.url, "Talk to the server at this http:// address in place of MODEL");
  command.option("--api-key", options.api_key, "The server's key");
  command.option("--system", options.system, "System message");
  command.option("--thinking", options.thinking, "on, off, minimal, low, medium, high, max or 1 to 100");
  command.option("--temperature", options.temperature, 0, 2, "0 takes the likeliest token each time");
  command.option("--max-tokens", options.max_tokens, 1, INT32_MAX, "Most tokens of an answer; default: what fits");
  command.option("--seed", options.seed, 0, INT64_MAX, "The same seed gives the same answers; default: random");
  add_model_options(command, options.engine);
  command.example("gannet chat nano --thinking off");
  command.action([] { return chat(options); });
}

}  // namespace gannet::cli
