#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/error.h"
#include "text/answer_judge.h"
#include "text/chat_request.h"
#include "text/tokenizer.h"

namespace gannet::cli {

// One conversation that ends where the model has to answer.
struct EvalTask {
  std::string set;
  text::ChatRequest request;
  text::AnswerJudge judge;
};

struct EvalFamily {
  std::string name;
  std::vector<EvalTask> tasks;
};

// Names of the families in a folder, sorted: of NAME.jsonl each. Error (invalid_input): there is no folder or no
// family.
Result<std::vector<std::string>> eval_families(const std::filesystem::path& folder);

// The first `limit` tasks of a family. A line is a body of Chat Completions with two fields more, `set` and `judge`
// (text/answer_judge.h), and for a long text a third one: {"document": {"seed", "tokens", "fact"}} makes a text in
// which about `tokens` tokens of lines from the folder's lines.txt follow the fact; it takes the place of "{document}"
// in the messages. Errors (invalid_input) name file, line and field.
Result<EvalFamily> read_eval_family(const std::filesystem::path& folder, const std::string& name, size_t limit,
                                    const text::Tokenizer& tokenizer);

}  // namespace gannet::cli
