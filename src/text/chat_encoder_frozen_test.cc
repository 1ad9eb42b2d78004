#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "text/chat_encoder.h"
#include "text/protocol/chat_body.h"
#include "text/protocol/core_body.h"
#include "text/protocol/messages_body.h"
#include "text/protocol/responses_body.h"
#include "text/test_data.h"

// The frozen answers of the official package: tests/data/text/README.md.

namespace gannet::text {
namespace {

using nlohmann::json;

// Requests that the official package refuses and Gannet accepts; docs/text.md gives the reasons.
const std::set<std::string> kAcceptedAnyway = {"tools_strict-018",
                                               "tools_strict-021",
                                               "tools_strict-022",
                                               "response_format-023",
                                               "response_format-024",
                                               "prefix-021",
                                               "sampling-017",
                                               "errors-002",
                                               "errors-007",
                                               "errors-008",
                                               "errors-015",
                                               "errors-021",
                                               "errors-023",
                                               "errors-025",
                                               "errors-033",
                                               "messages_errors-004",
                                               "messages_errors-008",
                                               "messages_errors-010",
                                               "responses_errors-013",
                                               "tool_choice-006",
                                               "messages_tool_choice-008",
                                               "responses_tool_choice-006",
                                               "responses_tool_choice-008",
                                               "responses_tool_choice-010"};

Result<ChatRequest> read_request(const std::string& api, const std::string& body, const json& options) {
  ConversionOptions conversion;
  conversion.default_thinking = options.value("default_thinking", true);
  conversion.refuse_missing_reasoning = options.value("reasoning_missing", "fill") == "reject";
  if (api == "chat") return chat_request(body, conversion);
  if (api == "messages") return messages_request(body, conversion);
  if (api == "responses") return responses_request(body, conversion);
  return core_request(body);
}

// Half-open ranges of control tokens in code points.
json control_ranges(const RenderedPrompt& prompt) {
  json ranges = json::array();
  size_t position = 0;
  for (const auto& segment : prompt.segments) {
    const size_t start = position;
    for (const char byte : segment.text) position += (byte & 0xC0) != 0x80;
    if (segment.is_control) ranges.push_back({start, position});
  }
  return ranges;
}

void check_parse_options(const ChatRequest& request, const json& frozen) {
  const ParseOptions options = parse_options(request);
  const json stage = frozen.value("stage", json());
  const bool reasons = stage == "reasoning_start" || stage == "reasoning_continuation";
  EXPECT_EQ(options.stage == ParseOptions::Stage::reasoning, reasons);
  EXPECT_EQ(options.tools, frozen.at("tools").get<bool>());
  EXPECT_EQ(options.starts_in_tool_calls, frozen.value("starts_in_tool_calls", false));
  EXPECT_EQ(options.stop, frozen.value("stop", std::vector<std::string>{}));
  EXPECT_EQ(request.response_format.kind == ResponseFormat::Kind::json_object, frozen.value("json", false));
}

void check_request(const ChatRequest& request, const json& frozen) {
  EXPECT_EQ(request.thinking, frozen.at("thinking").get<bool>());
  if (frozen.contains("parse")) check_parse_options(request, frozen.at("parse"));
  if (frozen.contains("stream")) {
    EXPECT_EQ(request.stream, frozen.at("stream").get<bool>());
  }
  const json sampling = frozen.value("sampling", json::object());
  // The official API caps max_tokens for Messages.
  if (sampling.contains("max_tokens") && sampling.at("max_tokens") != 393216) {
    EXPECT_EQ(request.sampling.max_tokens, sampling.at("max_tokens").get<int64_t>());
  }
  if (sampling.contains("seed")) {
    EXPECT_EQ(request.sampling.seed, sampling.at("seed").get<uint64_t>());
  }
  EXPECT_EQ(request.sampling.logprobs, sampling.value("logprobs", false));
  EXPECT_EQ(request.sampling.top_logprobs, sampling.value("top_logprobs", 0));
  // Gannet also knows the namespaces that tool searches found.
  const json namespaces = frozen.value("namespace_map", json::object());
  for (const auto& [name, parts] : namespaces.items()) {
    ASSERT_TRUE(request.namespaces.contains(name));
    EXPECT_EQ(json({request.namespaces.at(name).first, request.namespaces.at(name).second}), parts);
  }
}

void check_accepted(const ChatRequest& request, const json& frozen) {
  check_request(request, frozen);
  const auto chat_template = frozen.value("encoder", "v41") == "v4" ? ChatTemplate::v4 : ChatTemplate::api;
  const RenderedPrompt prompt = render_prompt(request, chat_template);
  ASSERT_EQ(prompt.text(), frozen.at("prompt").get<std::string>());
  EXPECT_EQ(control_ranges(prompt), frozen.at("special"));
  EXPECT_EQ(prompt.images.size(), frozen.value("images", json::array()).size());
  const auto ids = encode_prompt(prompt, test_data::released_tokenizer()).value();
  EXPECT_EQ(ids.size(), frozen.at("n").get<size_t>());
  EXPECT_EQ(test_data::short_hash(ids), frozen.at("h").get<std::string>());
  if (!frozen.contains("h_tiny")) return;
  const auto small_ids = encode_prompt(prompt, test_data::small_tokenizer()).value();
  EXPECT_EQ(small_ids.size(), frozen.at("n_tiny").get<size_t>());
  EXPECT_EQ(test_data::short_hash(small_ids), frozen.at("h_tiny").get<std::string>());
}

TEST(ChatEncoderFrozen, Requests) {
  size_t accepted = 0;
  for (const std::string& line : test_data::read_lines("chat_encode.jsonl")) {
    const json frozen = json::parse(line);
    const std::string id = frozen.at("id");
    SCOPED_TRACE(id);
    const auto request = read_request(frozen.at("api"), frozen.at("body"), frozen.value("opts", json::object()));
    if (frozen.at("ok").get<bool>()) {
      ASSERT_TRUE(request) << request.error().message;
      check_accepted(*request, frozen);
      ++accepted;
    } else {
      EXPECT_EQ(request.has_value(), kAcceptedAnyway.contains(id));
      if (!request) {
        EXPECT_EQ(request.error().kind, ErrorKind::invalid_input);
      }
    }
  }
  EXPECT_EQ(accepted, 562U);
}

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream content;
  content << file.rdbuf();
  return content.str();
}

std::string recorded_body(const std::string& name) {
  const auto recording = parse_json(read_file(std::string(GANNET_TEST_DATA) + "/clients/" + name));
  return compact_json(*recording.value().find("body"));
}

TEST(ChatEncoderFrozen, RecordedClients) {
  const json clients = json::parse(test_data::read("clients.json"));
  for (const json& frozen : clients) {
    SCOPED_TRACE(frozen.at("file").get<std::string>());
    const auto request = read_request(frozen.at("api"), recorded_body(frozen.at("file")), json::object());
    ASSERT_TRUE(request) << request.error().message;
    const RenderedPrompt prompt = render_prompt(*request);
    EXPECT_TRUE(prompt.text().starts_with(frozen.at("head").get<std::string>()));
    EXPECT_TRUE(prompt.text().ends_with(frozen.at("tail").get<std::string>()));
    EXPECT_EQ(control_ranges(prompt).size(), frozen.at("special_ranges").get<size_t>());
    const auto ids = encode_prompt(prompt, test_data::released_tokenizer()).value();
    EXPECT_EQ(ids.size(), frozen.at("n").get<size_t>());
    EXPECT_EQ(test_data::short_hash(ids), frozen.at("h").get<std::string>());
    const auto small_ids = encode_prompt(prompt, test_data::small_tokenizer()).value();
    EXPECT_EQ(test_data::short_hash(small_ids), frozen.at("h_tiny").get<std::string>());
  }
}

// The second turn of a client must find all of its first turn in the prefix cache.
TEST(ChatEncoderFrozen, RecordedClientsKeepTheirPrefix) {
  const std::tuple<const char*, const char*, const char*> turns[] = {{"messages", "claude-2.json", "claude-3.json"},
                                                                     {"responses", "codex-1.json", "codex-2.json"},
                                                                     {"chat", "opencode-2.json", "opencode-3.json"}};
  for (const auto& [api, first, second] : turns) {
    SCOPED_TRACE(first);
    const auto first_prompt = render_prompt(read_request(api, recorded_body(first), json::object()).value()).text();
    const auto second_prompt = render_prompt(read_request(api, recorded_body(second), json::object()).value()).text();
    EXPECT_TRUE(second_prompt.starts_with(first_prompt));
    EXPECT_GT(second_prompt.size(), first_prompt.size());
  }
}

}  // namespace
}  // namespace gannet::text
