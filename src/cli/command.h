#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"

namespace CLI {
class App;
}

namespace gannet::cli {

// One subcommand of the program: a thin face over CLI11, which only command.cc includes (it is slow to compile).
// Every option writes to a variable that must outlive run(); its initial value is the default and is shown in --help.
class Command {
 public:
  explicit Command(CLI::App& app) : app_(&app) {}

  Command subcommand(const std::string& name, const std::string& help);

  void positional(const std::string& name, std::string& target, const std::string& help);
  void optional_positional(const std::string& name, std::string& target, const std::string& help);
  void option(const std::string& name, std::string& target, const std::string& help);
  void required_option(const std::string& name, std::string& target, const std::string& help);
  void option(const std::string& name, std::optional<std::string>& target, const std::string& help);
  void option(const std::string& name, std::vector<std::string>& target, const std::string& help);
  // Numbers outside [low, high] are refused with a message that names the option and the range.
  void option(const std::string& name, int64_t& target, int64_t low, int64_t high, const std::string& help);
  void option(const std::string& name, std::optional<int64_t>& target, int64_t low, int64_t high,
              const std::string& help);
  void option(const std::string& name, double& target, double low, double high, const std::string& help);
  void choice(const std::string& name, std::string& target, const std::vector<std::string>& allowed,
              const std::string& help);
  void flag(const std::string& name, bool& target, const std::string& help);
  // `--name` and `--no-name`.
  void on_off(const std::string& name, bool& target, const std::string& help);
  void example(const std::string& text);

  // What the command does when chosen. An error ends the program with status 2 (invalid_input) or 1.
  void action(std::function<Status()> run);

 private:
  CLI::App* app_;
};

// Every subcommand adds itself here; one file each.
void add_serve(Command& root);
void add_chat(Command& root);
void add_generate(Command& root);
void add_logits(Command& root);
void add_text(Command& root);
void add_inspect(Command& root);
void add_make_checkpoint(Command& root);
void add_eval(Command& root);
void add_bench(Command& root);
void add_version(Command& root);

// Parses the arguments and runs the chosen subcommand; returns the exit status.
int run_program(int argc, char** argv, const std::function<void(Command&)>& add_commands);

}  // namespace gannet::cli
