#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>

#include "text/message_parser.h"
#include "text/test_data.h"
#include "text/utf8.h"

// The frozen outputs of tests/data/text/parse.jsonl: well-formed ones must give the official package's message and
// joined deltas; for all, the way the text is cut must not matter.

namespace gannet::text {
namespace {

using nlohmann::json;

ParseOptions read_options(const json& frozen) {
  ParseOptions options;
  const json stage = frozen.at("stage");
  if (stage == "reasoning_start" || stage == "reasoning_continuation") options.stage = ParseOptions::Stage::reasoning;
  options.tools = frozen.at("tools").get<bool>();
  options.starts_in_tool_calls = frozen.value("starts_in_tool_calls", false);
  options.stop = frozen.value("stop", std::vector<std::string>{});
  return options;
}

StopCause read_cause(const json& finish) {
  if (finish == "length") return StopCause::length;
  return finish == "content_filter" ? StopCause::content_filter : StopCause::stop;
}

// A message in the form of the frozen answers.
json message_json(const ParsedMessage& message) {
  json calls = json::array();
  for (const auto& call : message.tool_calls) calls.push_back({call.name, call.arguments});
  return {{"r", message.reasoning},
          {"c", message.content},
          {"calls", calls},
          {"end", finish_reason_name(message.finish_reason)}};
}

// Neighbouring deltas of one kind joined: ["r", text], ["c", text], ["t", call, name], ["a", call, text].
class JoinedDeltas {
 public:
  void add(const std::vector<Delta>& deltas) {
    for (const Delta& delta : deltas) {
      switch (delta.kind) {
        case Delta::Kind::reasoning:
          add_text({"r"}, delta.text);
          break;
        case Delta::Kind::content:
          add_text({"c"}, delta.text);
          break;
        case Delta::Kind::tool_call:
          joined_.push_back({"t", delta.call, delta.text});
          break;
        case Delta::Kind::arguments:
          add_text({"a", delta.call}, delta.text);
          break;
      }
      EXPECT_EQ(valid_utf8_length(delta.text), delta.text.size());
    }
  }

  // The same of a frozen list of events; the end is left out.
  void add_frozen(const json& events) {
    for (const json& event : events) {
      std::string code = event.at(0);
      if (code == "end") continue;
      for (char& letter : code) letter = static_cast<char>(std::tolower(letter));
      if (code == "t") {
        joined_.push_back(event);
      } else if (code == "a") {
        add_text({code, event.at(1)}, event.at(2));
      } else {
        add_text({code}, event.at(1));
      }
    }
  }

  const json& get() const { return joined_; }

 private:
  void add_text(json head, const std::string& text) {
    if (text.empty()) return;
    const bool continues = !joined_.empty() && joined_.back().size() == head.size() + 1 &&
                           std::equal(head.begin(), head.end(), joined_.back().begin());
    if (continues) {
      joined_.back().back() = joined_.back().back().get<std::string>() + text;
    } else {
      head.push_back(text);
      joined_.push_back(head);
    }
  }

  json joined_ = json::array();
};

struct Parsed {
  json message;
  json deltas;
};

Parsed parse_pieces(const ParseOptions& options, const std::vector<std::string>& pieces, StopCause cause) {
  MessageParser parser(options);
  JoinedDeltas deltas;
  for (const std::string& piece : pieces) deltas.add(parser.push(piece));
  deltas.add(parser.finish(cause));
  return {message_json(parser.message()), deltas.get()};
}

Parsed parse_ids(const ParseOptions& options, const std::vector<int32_t>& ids, StopCause cause) {
  TokenMessageParser parser(test_data::released_tokenizer(), options);
  JoinedDeltas deltas;
  for (const int32_t id : ids) deltas.add(parser.push(id));
  deltas.add(parser.finish(cause));
  return {message_json(parser.message()), deltas.get()};
}

std::vector<std::string> characters(const std::string& text) {
  std::vector<std::string> all;
  for (size_t position = 0; position < text.size();) {
    const size_t length = utf8_length(text[position]);
    all.push_back(text.substr(position, length));
    position += length;
  }
  return all;
}

std::vector<std::string> cut_at(const std::string& text, const std::vector<size_t>& lengths) {
  const auto all = characters(text);
  std::vector<std::string> pieces;
  size_t next = 0;
  for (const size_t length : lengths) {
    pieces.emplace_back();
    for (size_t count = 0; count < length; ++count) pieces.back() += all.at(next++);
  }
  return pieces;
}

std::vector<std::string> cut_at_random(const std::string& text, std::mt19937& random) {
  std::vector<std::string> pieces(1);
  for (const std::string& character : characters(text)) {
    if (random() % 3 == 0) pieces.emplace_back();
    pieces.back() += character;
  }
  return pieces;
}

void check_text(const json& frozen, const ParseOptions& options, StopCause cause, std::mt19937& random) {
  const std::string text = frozen.at("text");
  const Parsed whole = parse_pieces(options, {text}, cause);
  std::vector<std::vector<std::string>> cuts = {characters(text)};
  for (int repeat = 0; repeat < 5; ++repeat) cuts.push_back(cut_at_random(text, random));
  for (const json& run : frozen.at("runs")) {
    if (run.at("mode") == "text" && run.at("cut").is_array()) cuts.push_back(cut_at(text, run.at("cut")));
  }
  for (const auto& pieces : cuts) {
    const Parsed parsed = parse_pieces(options, pieces, cause);
    EXPECT_EQ(parsed.message, whole.message) << json(pieces);
    EXPECT_EQ(parsed.deltas, whole.deltas) << json(pieces);
  }
  if (frozen.at("wf").get<bool>()) {
    EXPECT_EQ(whole.message, frozen.at("final"));
  }
}

TEST(MessageParserFrozen, Outputs) {
  std::mt19937 random(7);  // NOLINT(cert-msc51-cpp): repeatable on purpose
  for (const std::string& line : test_data::read_lines("parse.jsonl")) {
    const json frozen = json::parse(line);
    SCOPED_TRACE(frozen.at("id").get<std::string>());
    const ParseOptions options = read_options(frozen.at("opts"));
    const StopCause cause = read_cause(frozen.at("finish"));
    if (frozen.contains("text")) check_text(frozen, options, cause, random);
    const Parsed from_ids = parse_ids(options, frozen.at("ids"), cause);
    if (!frozen.at("wf").get<bool>()) continue;
    EXPECT_EQ(from_ids.message, frozen.at("final"));
    for (const json& run : frozen.at("runs")) {
      JoinedDeltas expected;
      expected.add_frozen(run.at("ev"));
      EXPECT_EQ(from_ids.deltas, expected.get());
    }
  }
}

}  // namespace
}  // namespace gannet::text
