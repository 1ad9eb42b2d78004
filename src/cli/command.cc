#include "cli/command.h"

#include <CLI/CLI.hpp>
#include <charconv>
#include <cstdio>
#include <exception>
#include <new>
#include <utility>

namespace gannet::cli {
namespace {

constexpr int kUsageError = 2;
constexpr int kFailure = 1;

std::function<Status()>& chosen_action() {
  static std::function<Status()> action;
  return action;
}

// The whole text as a decimal number; CLI11's own conversion also takes hexadecimal ones.
template <class Number>
bool parse_number(const std::string& text, Number& value) {
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  return error == std::errc() && rest == end;
}

template <class Number>
CLI::Validator in_range(const std::string& name, Number low, Number high) {
  return CLI::Validator(
      [name, low, high](std::string& text) -> std::string {
        Number value{};
        if (!parse_number(text, value) || !(value >= low && value <= high)) {
          return fmt::format("{} is '{}'; it must be a number from {} to {}", name, text, low, high);
        }
        return {};
      },
      fmt::format("{}..{}", low, high));
}

// The command that was being parsed: `gannet text tokenize` rather than `gannet`.
const CLI::App& innermost(const CLI::App& root) {
  const CLI::App* app = &root;
  while (!app->get_subcommands().empty()) app = app->get_subcommands().back();
  return *app;
}

std::string full_name(const CLI::App& app) {
  const CLI::App* parent = app.get_parent();
  return parent == nullptr ? app.get_name() : full_name(*parent) + " " + app.get_name();
}

std::vector<std::string> names_of_commands(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands(nullptr)) names.push_back(command->get_name());
  return names;
}

// One line that says what is wrong and what would be right.
std::string usage_message(const CLI::App& root, const CLI::ParseError& error) {
  const CLI::App& app = innermost(root);
  const auto commands = names_of_commands(app);
  const auto extras = root.remaining(true);
  const std::string help = fmt::format("see {} --help", full_name(app));
  std::string text = error.what();
  if (!extras.empty() && extras[0].starts_with("-")) {
    text = fmt::format("there is no option {}; {}", extras[0], help);
  } else if (!commands.empty()) {
    const std::string found = extras.empty() ? "is missing" : fmt::format("is '{}'", extras[0]);
    text = fmt::format("the command {}; it must be one of {}", found, fmt::join(commands, ", "));
  } else if (!extras.empty()) {
    text = fmt::format("'{}' is one argument too many; {}", extras[0], help);
  } else {
    // The option's name comes twice when a check of ours refused its value.
    const size_t name_end = text.find(": ");
    if (name_end != std::string::npos && text.compare(name_end + 2, name_end, text, 0, name_end) == 0) {
      text.erase(0, name_end + 2);
    }
    text += fmt::format(" ({})", help);
  }
  for (char& letter : text) {
    if (letter == '\n') letter = ' ';
  }
  return text;
}

// What no command expects, such as too little memory, is still one line and an exit status.
Status run_action() {
  try {
    return chosen_action()();
  } catch (const std::bad_alloc&) {
    return failed("out of memory");
  } catch (const std::exception& error) {
    return failed("{}", error.what());
  }
}

}  // namespace

Command Command::subcommand(const std::string& name, const std::string& help) {
  auto* sub = app_->add_subcommand(name, help);
  app_->require_subcommand(1);
  return Command(*sub);
}

void Command::positional(const std::string& name, std::string& target, const std::string& help) {
  app_->add_option(name, target, help)->required();
}

void Command::optional_positional(const std::string& name, std::string& target, const std::string& help) {
  app_->add_option(name, target, help);
}

void Command::option(const std::string& name, std::string& target, const std::string& help) {
  app_->add_option(name, target, help)->capture_default_str();
}

void Command::required_option(const std::string& name, std::string& target, const std::string& help) {
  app_->add_option(name, target, help)->required();
}

void Command::option(const std::string& name, std::optional<std::string>& target, const std::string& help) {
  app_->add_option(name, target, help);
}

void Command::option(const std::string& name, std::vector<std::string>& target, const std::string& help) {
  // One value each time, so that a list never swallows the positional argument behind it.
  app_->add_option(name, target, help)->allow_extra_args(false);
}

void Command::option(const std::string& name, int64_t& target, int64_t low, int64_t high, const std::string& help) {
  app_->add_option(name, target, help)->check(in_range(name, low, high))->capture_default_str();
}

void Command::option(const std::string& name, std::optional<int64_t>& target, int64_t low, int64_t high,
                     const std::string& help) {
  app_->add_option(name, target, help)->check(in_range(name, low, high));
}

void Command::option(const std::string& name, double& target, double low, double high, const std::string& help) {
  app_->add_option(name, target, help)->check(in_range(name, low, high))->capture_default_str();
}

void Command::choice(const std::string& name, std::string& target, const std::vector<std::string>& allowed,
                     const std::string& help) {
  const auto check = CLI::Validator(
      [name, allowed](std::string& text) -> std::string {
        for (const auto& value : allowed) {
          if (text == value) return {};
        }
        return fmt::format("{} is '{}'; it must be one of {}", name, text, CLI::detail::join(allowed, ", "));
      },
      CLI::detail::join(allowed, "|"));
  app_->add_option(name, target, help)->check(check)->capture_default_str();
}

void Command::flag(const std::string& name, bool& target, const std::string& help) {
  app_->add_flag(name, target, help);
}

void Command::on_off(const std::string& name, bool& target, const std::string& help) {
  app_->add_flag(fmt::format("--{0},!--no-{0}", name), target, fmt::format("{} (now {})", help, target ? "on" : "off"));
}

void Command::example(const std::string& text) {
  app_->footer("Example: " + text);
}

void Command::action(std::function<Status()> run) {
  app_->callback([run = std::move(run)] { chosen_action() = run; });
}

int run_program(int argc, char** argv, const std::function<void(Command&)>& add_commands) {
  CLI::App app("Gannet serves DeepSeek-V4.1-Flash");
  app.name("gannet");
  Command root(app);
  add_commands(root);
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp& help) {
    return app.exit(help);
  } catch (const CLI::ParseError& error) {
    std::fprintf(stderr, "gannet: %s\n", usage_message(app, error).c_str());
    return kUsageError;
  }
  const auto status = run_action();
  if (status) return 0;
  std::fprintf(stderr, "gannet: %s\n", status.error().message.c_str());
  return status.error().kind == ErrorKind::invalid_input ? kUsageError : kFailure;
}

}  // namespace gannet::cli
