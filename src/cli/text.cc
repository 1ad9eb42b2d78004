#include <functional>
#include <iostream>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "checkpoint/checkpoint.h"
#include "cli/command.h"
#include "cli/output.h"
#include "text/chat_encoder.h"
#include "text/json.h"
#include "text/message_parser.h"
#include "text/protocol/chat_body.h"
#include "text/protocol/core_body.h"
#include "text/protocol/fields.h"
#include "text/protocol/messages_body.h"
#include "text/protocol/responses_body.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

namespace gannet::cli {
namespace {

using text::Fields;
using text::Json;

struct TextOptions {
  std::optional<std::string> tokenizer;
  std::optional<std::string> model;
  std::string api = "chat";
  std::string chat_template = "api";
  bool default_thinking = true;
  std::string missing_reasoning = "fill";
  bool plain = false;
  std::string stage = "content";
  std::string tools = "on";
};

using LineFunction = std::function<Result<Json>(const std::string& line)>;

Result<text::Tokenizer> load_tokenizer(const TextOptions& options) {
  if (options.tokenizer) return text::Tokenizer::load(*options.tokenizer);
  if (!options.model)
    return invalid_input("--tokenizer is missing; name a tokenizer.json, or a checkpoint with --model");
  GANNET_TRY(const auto directory, find_model(*options.model));
  return text::Tokenizer::load(directory / "tokenizer.json");
}

// One answer a line for each line of standard input, in the same order.
Status answer_lines(const LineFunction& answer) {
  std::string line;
  while (std::getline(std::cin, line)) {
    auto result = answer(line);
    Json json;
    if (result) {
      json = *std::move(result);
    } else {
      // The message may quote a line that is not UTF-8.
      std::string message;
      text::append_lossy_utf8(message, result.error().message);
      json = Json(Json::Object{{"error", std::move(message)}, {"status", int64_t{400}}});
    }
    GANNET_TRY_STATUS(write_output(text::compact_json(json) + "\n"));
  }
  return {};
}

Json ids_json(const std::vector<int32_t>& ids) {
  Json::Array array;
  array.reserve(ids.size());
  for (const int32_t id : ids) array.emplace_back(int64_t{id});
  return Json(std::move(array));
}

Result<std::vector<int32_t>> read_ids(const Json::Array& list) {
  std::vector<int32_t> ids;
  for (const Json& value : list) {
    const auto* id = std::get_if<uint64_t>(&value.value());
    if (id == nullptr || *id > static_cast<uint64_t>(std::numeric_limits<int32_t>::max())) {
      return invalid_input("ids: {} is not a token id", text::python_json(value));
    }
    ids.push_back(static_cast<int32_t>(*id));
  }
  return ids;
}

Result<text::ChatRequest> read_request(const TextOptions& options, const std::string& body) {
  text::ConversionOptions conversion;
  conversion.default_thinking = options.default_thinking;
  conversion.refuse_missing_reasoning = options.missing_reasoning == "refuse";
  if (options.api == "chat") return text::chat_request(body, conversion);
  if (options.api == "messages") return text::messages_request(body, conversion);
  if (options.api == "responses") return text::responses_request(body, conversion);
  return text::core_request(body);
}

Status render(const TextOptions& options) {
  GANNET_TRY(const auto tokenizer, load_tokenizer(options));
  return answer_lines([&](const std::string& line) -> Result<Json> {
    GANNET_TRY(const auto request, read_request(options, line));
    auto chat_template = text::ChatTemplate::api;
    if (options.chat_template == "checkpoint") chat_template = text::ChatTemplate::checkpoint;
    // The official API serves both generations and tells them apart by the model's name.
    if (options.chat_template == "v4" || (options.chat_template == "api" && request.model == "DeepSeek-V4-Pro")) {
      chat_template = text::ChatTemplate::v4;
    }
    const auto prompt = text::render_prompt(request, chat_template);
    GANNET_TRY(const auto ids, text::encode_prompt(prompt, tokenizer));
    return Json(Json::Object{{"prompt", prompt.text()}, {"ids", ids_json(ids)}});
  });
}

Status tokenize(const TextOptions& options) {
  GANNET_TRY(const auto tokenizer, load_tokenizer(options));
  return answer_lines([&](const std::string& line) -> Result<Json> {
    GANNET_TRY(const Json parsed, text::parse_json(line));
    GANNET_TRY(const auto fields, Fields::of(parsed, "line"));
    GANNET_TRY(const auto input, fields.required_text("text"));
    GANNET_TRY(const auto ids, options.plain ? tokenizer.encode_plain(input) : tokenizer.encode(input));
    return Json(Json::Object{{"ids", ids_json(ids)}});
  });
}

Status detokenize(const TextOptions& options) {
  GANNET_TRY(const auto tokenizer, load_tokenizer(options));
  return answer_lines([&](const std::string& line) -> Result<Json> {
    GANNET_TRY(const Json parsed, text::parse_json(line));
    GANNET_TRY(const auto fields, Fields::of(parsed, "line"));
    GANNET_TRY(const auto* list, fields.list("ids"));
    if (list == nullptr) return invalid_input("ids: missing; expected a list of token ids");
    GANNET_TRY(const auto ids, read_ids(*list));
    GANNET_TRY(auto decoded, tokenizer.decode(ids));
    return Json(Json::Object{{"text", std::move(decoded)}});
  });
}

Result<bool> read_tools_switch(const Fields& fields, const TextOptions& options) {
  const Json* value = fields.get("tools");
  if (value == nullptr) return options.tools == "on";
  if (const auto* flag = value->boolean()) return *flag;
  const auto* name = value->string();
  if (name != nullptr && (*name == "on" || *name == "off")) return *name == "on";
  return invalid_input("tools: {} is not one of on, off, true, false", text::python_json(*value));
}

Result<text::ParseOptions> read_parse_options(const Fields& fields, const TextOptions& options) {
  text::ParseOptions parse;
  GANNET_TRY(const auto stage_field, fields.text("stage"));
  const std::string stage = stage_field.value_or(options.stage);
  if (stage == "reasoning" || stage == "reasoning_start" || stage == "reasoning_continuation") {
    parse.stage = text::ParseOptions::Stage::reasoning;
  } else if (stage != "content" && stage != "content_continuation") {
    return invalid_input("stage: '{}' is not one of reasoning, content", stage);
  }
  GANNET_TRY(parse.tools, read_tools_switch(fields, options));
  GANNET_TRY(parse.starts_in_tool_calls, fields.flag_or("starts_in_tool_calls", false));
  GANNET_TRY(const auto* stops, fields.list("stop"));
  for (size_t index = 0; stops != nullptr && index < stops->size(); ++index) {
    const auto* stop = (*stops)[index].string();
    if (stop == nullptr || stop->empty()) return invalid_input("{}: not a stop string", fields.path("stop", index));
    parse.stop.push_back(*stop);
  }
  return parse;
}

Result<text::StopCause> read_stop_cause(const Fields& fields) {
  GANNET_TRY(const auto name, fields.text("finish"));
  if (!name || *name == "stop") return text::StopCause::stop;
  if (*name == "length") return text::StopCause::length;
  if (*name == "content_filter") return text::StopCause::content_filter;
  return invalid_input("finish: '{}' is not one of stop, length, content_filter", *name);
}

Json delta_json(const text::Delta& delta) {
  using Kind = text::Delta::Kind;
  switch (delta.kind) {
    case Kind::reasoning:
      return Json(Json::Object{{"reasoning", delta.text}});
    case Kind::content:
      return Json(Json::Object{{"content", delta.text}});
    case Kind::tool_call:
      return Json(Json::Object{{"tool_call", int64_t{delta.call}}, {"name", delta.text}});
    case Kind::arguments:
      return Json(Json::Object{{"tool_call", int64_t{delta.call}}, {"arguments", delta.text}});
  }
  return {};
}

Json message_json(const text::ParsedMessage& message, const std::optional<Json::Array>& deltas) {
  Json::Array calls;
  for (const auto& call : message.tool_calls) {
    calls.emplace_back(Json::Object{{"name", call.name}, {"arguments", call.arguments}});
  }
  Json::Object out = {{"reasoning", message.reasoning},
                      {"content", message.content},
                      {"tool_calls", std::move(calls)},
                      {"finish_reason", std::string(text::finish_reason_name(message.finish_reason))}};
  if (message.stop_sequence) out.emplace_back("stop_sequence", *message.stop_sequence);
  if (!message.unparsed_calls.empty()) {
    Json::Array unparsed(message.unparsed_calls.begin(), message.unparsed_calls.end());
    out.emplace_back("unparsed_calls", std::move(unparsed));
  }
  if (deltas) out.emplace_back("deltas", *deltas);
  return Json(std::move(out));
}

// The tokenizer is loaded when the first line with ids comes; text needs none.
class LineParser {
 public:
  explicit LineParser(const TextOptions& options) : options_(options) {}

  Result<Json> parse(const std::string& line) {
    GANNET_TRY(const Json parsed, text::parse_json(line));
    GANNET_TRY(const auto fields, Fields::of(parsed, "line"));
    GANNET_TRY(const auto parse_options, read_parse_options(fields, options_));
    GANNET_TRY(const auto cause, read_stop_cause(fields));
    GANNET_TRY(const auto* ids, fields.list("ids"));
    if (ids != nullptr) return parse_ids(*ids, parse_options, cause);
    GANNET_TRY(const auto* pieces, fields.list("pieces"));
    if (pieces != nullptr) return parse_pieces(*pieces, parse_options, cause);
    GANNET_TRY(const auto whole, fields.text("text"));
    if (!whole) return invalid_input("expected one of the fields text, pieces, ids");
    text::MessageParser parser(parse_options);
    parser.push(*whole);
    parser.finish(cause);
    return message_json(parser.message(), {});
  }

 private:
  static void collect(const std::vector<text::Delta>& deltas, Json::Array& out) {
    for (const auto& delta : deltas) out.push_back(delta_json(delta));
  }

  static Result<Json> parse_pieces(const Json::Array& pieces, const text::ParseOptions& parse_options,
                                   text::StopCause cause) {
    text::MessageParser parser(parse_options);
    Json::Array deltas;
    for (const Json& piece : pieces) {
      if (piece.string() == nullptr) return text::wrong_type("pieces", "strings", piece);
      collect(parser.push(*piece.string()), deltas);
    }
    collect(parser.finish(cause), deltas);
    return message_json(parser.message(), deltas);
  }

  Result<Json> parse_ids(const Json::Array& list, const text::ParseOptions& parse_options, text::StopCause cause) {
    if (!tokenizer_) {
      GANNET_TRY(auto loaded, load_tokenizer(options_));
      tokenizer_ = std::make_unique<text::Tokenizer>(std::move(loaded));
    }
    GANNET_TRY(const auto ids, read_ids(list));
    text::TokenMessageParser parser(*tokenizer_, parse_options);
    Json::Array deltas;
    for (const int32_t id : ids) collect(parser.push(id), deltas);
    collect(parser.finish(cause), deltas);
    return message_json(parser.message(), deltas);
  }

  const TextOptions& options_;
  std::unique_ptr<text::Tokenizer> tokenizer_;
};

Status parse(const TextOptions& options) {
  LineParser parser(options);
  return answer_lines([&parser](const std::string& line) { return parser.parse(line); });
}

Command add_text_command(Command& group, TextOptions& options, const std::string& name, const std::string& help) {
  Command command = group.subcommand(name, help);
  command.option("--tokenizer", options.tokenizer, "tokenizer.json to use");
  command.option("--model", options.model,
                 "Checkpoint directory, or the name of one under models/, with the tokenizer");
  return command;
}

}  // namespace

void add_text(Command& root) {
  static TextOptions options;
  Command group =
      root.subcommand("text", "Chat encoding, tokenizer and answer parser; one JSON object a line in and out");

  Command rendering = add_text_command(group, options, "render", "Request bodies to prompts and token ids");
  rendering.choice("--api", options.api, {"chat", "messages", "responses", "core"},
                   "Protocol of the bodies; core: conversations without a protocol's rules");
  rendering.choice("--chat-template", options.chat_template, {"api", "checkpoint", "v4"},
                   "Rules of the official API, of the checkpoint's own encoder, or of DeepSeek-V4");
  rendering.on_off("default-thinking", options.default_thinking, "Think when a body says neither yes nor no");
  rendering.choice("--missing-reasoning", options.missing_reasoning, {"fill", "refuse"},
                   "What to do when the current turn's reasoning was not sent back");
  rendering.example(R"(echo '{"messages":[{"role":"user","content":"Hi"}]}' | gannet text render --model nano)");
  rendering.action([] { return render(options); });

  Command tokenizing = add_text_command(group, options, "tokenize", R"({"text": string} to {"ids": [int]})");
  tokenizing.flag("--plain", options.plain, "Recognise no added tokens");
  tokenizing.example(R"(echo '{"text":"Hi"}' | gannet text tokenize --model nano)");
  tokenizing.action([] { return tokenize(options); });

  Command detokenizing = add_text_command(group, options, "detokenize", R"({"ids": [int]} to {"text": string})");
  detokenizing.example(R"(echo '{"ids":[1,2]}' | gannet text detokenize --model nano)");
  detokenizing.action([] { return detokenize(options); });

  Command parsing = add_text_command(
      group, options, "parse",
      R"({"text": string}, {"pieces": [string]} or {"ids": [int]} to a message; a line may set stage, tools, stop, )"
      R"(starts_in_tool_calls and finish. With pieces or ids also "deltas": {"reasoning": t}, {"content": t}, )"
      R"({"tool_call": n, "name": t} or {"tool_call": n, "arguments": t})");
  parsing.choice("--stage", options.stage, {"reasoning", "content"}, "What the text begins with");
  parsing.choice("--tools", options.tools, {"on", "off"}, "Whether calls are looked for");
  parsing.example(R"(echo '{"text":"Sums.</think>4"}' | gannet text parse --stage reasoning)");
  parsing.action([] { return parse(options); });
}

}  // namespace gannet::cli
