#include "cli/eval_tasks.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <random>
#include <system_error>
#include <utility>

#include "base/mapped_file.h"
#include "text/json.h"
#include "text/protocol/chat_body.h"

namespace gannet::cli {
namespace {

namespace fs = std::filesystem;
using text::Json;

constexpr std::string_view kPlace = "{document}";
constexpr uint64_t kMaxDocumentTokens = 10'000'000;
constexpr uint64_t kMostLinesBefore = 7;  // lines in front of the fact

std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    lines.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

// The lines that stand around a fact, read when the first document asks for them.
class Lines {
 public:
  Lines(fs::path file, const text::Tokenizer& tokenizer) : file_(std::move(file)), tokenizer_(tokenizer) {}

  // The same on every machine: the generator's numbers are fixed by the standard, and no distribution is used.
  Result<std::string> document(uint64_t seed, uint64_t tokens, const std::string& fact) {
    GANNET_TRY_STATUS(read());
    std::mt19937_64 random(seed);
    std::vector<size_t> order(lines_.size());
    std::iota(order.begin(), order.end(), 0);
    for (size_t left = order.size(); left > 1; --left) std::swap(order[left - 1], order[random() % left]);
    std::string out;
    size_t next = 0;
    for (uint64_t before = random() % (kMostLinesBefore + 1); before > 0; --before, ++next) {
      out.append(lines_[order[next % order.size()]]).append("\n");
    }
    out.append(fact);
    for (uint64_t count = 0; count < tokens; ++next) {
      const size_t line = order[next % order.size()];
      out.append("\n").append(lines_[line]);
      count += tokens_[line];
    }
    return out;
  }

 private:
  Status read() {
    if (!lines_.empty()) return {};
    GANNET_TRY(text_, read_file(file_));
    for (const std::string_view line : lines_of(text_)) {
      if (line.empty()) continue;
      GANNET_TRY(const auto ids, tokenizer_.encode_plain(fmt::format("{}\n", line)));
      lines_.push_back(line);
      tokens_.push_back(ids.size());
    }
    if (lines_.empty()) return invalid_input("{}: is empty; it must have the lines of documents", file_.string());
    return {};
  }

  fs::path file_;
  const text::Tokenizer& tokenizer_;
  std::string text_;
  std::vector<std::string_view> lines_;  // of text_
  std::vector<size_t> tokens_;           // of each line
};

std::optional<uint64_t> natural(const Json* value) {
  const auto* number = value != nullptr ? std::get_if<uint64_t>(&value->value()) : nullptr;
  return number != nullptr ? std::optional(*number) : std::nullopt;
}

Status place_document(const Json& description, Lines& lines, text::ChatRequest& request) {
  const auto seed = natural(description.find("seed"));
  const auto tokens = natural(description.find("tokens"));
  const Json* fact = description.find("fact");
  if (!seed || !tokens || *tokens > kMaxDocumentTokens || fact == nullptr || !fact->is_string()) {
    return invalid_input("document: {}; it must have seed, tokens (at most {}) and fact",
                         text::compact_json(description), kMaxDocumentTokens);
  }
  for (text::Message& message : request.messages) {
    const size_t at = message.content.find(kPlace);
    if (at == std::string::npos) continue;
    GANNET_TRY(const std::string document, lines.document(*seed, *tokens, *fact->string()));
    message.content.replace(at, kPlace.size(), document);
    return {};
  }
  return invalid_input("document: no message holds {}, whose place it takes", kPlace);
}

Result<EvalTask> read_task(std::string_view line, Lines& lines) {
  EvalTask task;
  GANNET_TRY(const Json json, text::parse_json(line));
  const Json* set = json.find("set");
  if (set == nullptr || !set->is_string()) return invalid_input("set is missing; it must be the name of a task's kind");
  task.set = *set->string();
  const Json* rules = json.find("judge");
  if (rules == nullptr) return invalid_input("judge is missing; it must say which answer is right");
  auto judge = text::AnswerJudge::from_json(*rules);
  if (!judge) return invalid_input("judge: {}", judge.error().message);
  task.judge = std::move(*judge);
  GANNET_TRY(task.request, text::chat_request(line));
  if (const Json* document = json.find("document")) {
    GANNET_TRY_STATUS(place_document(*document, lines, task.request));
  }
  return task;
}

}  // namespace

Result<std::vector<std::string>> eval_families(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator file(folder, error), end; !error && file != end; file.increment(error)) {
    if (file->path().extension() == ".jsonl") names.push_back(file->path().stem().string());
  }
  if (error) {
    return invalid_input("{}: {}; --tasks must be a folder of FAMILY.jsonl", folder.string(), error.message());
  }
  if (names.empty()) return invalid_input("{}: has no FAMILY.jsonl; --tasks must be a folder of such", folder.string());
  std::sort(names.begin(), names.end());
  return names;
}

Result<EvalFamily> read_eval_family(const fs::path& folder, const std::string& name, size_t limit,
                                    const text::Tokenizer& tokenizer) {
  const fs::path file = folder / (name + ".jsonl");
  GANNET_TRY(const std::string content, read_file(file));
  Lines lines(folder / "lines.txt", tokenizer);
  EvalFamily family{.name = name, .tasks = {}};
  size_t number = 0;
  for (const std::string_view line : lines_of(content)) {
    ++number;
    if (line.empty()) continue;
    if (family.tasks.size() == limit) break;
    auto task = read_task(line, lines);
    if (!task) {
      return tl::unexpected(
          Error{task.error().kind, fmt::format("{}:{}: {}", file.string(), number, task.error().message)});
    }
    family.tasks.push_back(std::move(*task));
  }
  if (family.tasks.empty()) return invalid_input("{}: is empty; it must have a task a line", file.string());
  return family;
}

}  // namespace gannet::cli
