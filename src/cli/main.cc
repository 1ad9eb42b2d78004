#include "cli/command.h"

namespace {

void add_commands(gannet::cli::Command& root) {
  gannet::cli::add_serve(root);
  gannet::cli::add_chat(root);
  gannet::cli::add_generate(root);
  gannet::cli::add_logits(root);
  gannet::cli::add_inspect(root);
  gannet::cli::add_eval(root);
  gannet::cli::add_bench(root);
  gannet::cli::add_make_checkpoint(root);
  gannet::cli::add_text(root);
  gannet::cli::add_version(root);
}

}  // namespace

int main(int argc, char** argv) {
  return gannet::cli::run_program(argc, argv, add_commands);
}
