#include <gtest/gtest.h>
#include <zstd.h>

#include <algorithm>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <sstream>
#include <string>

#include "server/anthropic_messages.h"
#include "server/openai_chat.h"
#include "server/responses.h"
#include "server/scripted_engine.h"
#include "text/protocol/sealed_reasoning.h"

// The frozen event streams of the official package (tests/data/text/README.md): each output comes in the frozen pieces
// from a scripted engine, and all events and the whole response must be those of the package. Where Gannet wants to
// differ, the functions below say how.

namespace gannet::server {
namespace {

using nlohmann::ordered_json;

constexpr int64_t kFrozenPromptTokens = 7;
constexpr int64_t kFrozenCachedTokens = 2;

// The engine filters nothing, so it never ends an answer for that.
const std::set<std::string> kFiltered = {"messages-012", "responses-012"};
// The package shows calls that were cut off, with arguments that are no JSON. Gannet shows only whole calls.
const std::set<std::string> kCutCalls = {"chat-009", "messages-009"};

std::string read_file(const std::string& name) {
  std::ifstream file(std::string(GANNET_TEST_DATA) + "/text/" + name, std::ios::binary);
  std::ostringstream content;
  content << file.rdbuf();
  return content.str();
}

const text::Tokenizer& released_tokenizer() {
  static const auto* loaded = [] {
    const std::string packed = read_file("tokenizer-v41.json.zst");
    std::string json(ZSTD_getFrameContentSize(packed.data(), packed.size()), '\0');
    ZSTD_decompress(json.data(), json.size(), packed.data(), packed.size());
    return std::make_unique<text::Tokenizer>(text::Tokenizer::parse(json, "tokenizer-v41.json").value()).release();
  }();
  return *loaded;
}

struct Event {
  std::string name;  // empty: none
  ordered_json data;
};

std::vector<Event> parse_events(const std::string& text) {
  std::vector<Event> events;
  std::istringstream lines(text);
  std::string name;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("event: ")) name = line.substr(7);
    if (line.starts_with("data: {")) events.push_back({name, ordered_json::parse(line.substr(6))});
  }
  return events;
}

// Removes what differs from run to run, and from the package on purpose, wherever it stands.
void normalise(ordered_json& value) {
  if (value.is_string()) {
    // The package drops newlines around the end of the reasoning; Gannet keeps what the model wrote.
    const auto text = value.get<std::string>();
    const size_t begin = std::min(text.find_first_not_of('\n'), text.size());
    value = text.substr(begin, text.find_last_not_of('\n') + 1 - begin);
  }
  if (value.is_array()) {
    for (auto& element : value) normalise(element);
  }
  if (!value.is_object()) return;
  for (const char* time : {"created", "created_at", "completed_at"}) {
    if (value.contains(time) && value[time].is_number()) value[time] = 0;
  }
  for (auto& [key, member] : value.items()) normalise(member);
  value.erase("encrypted_content");  // checked by its own test; the package's is an identifier, from the beginning on
  // Gannet tells these always, the package only of thinking.
  value.erase("completion_tokens_details");
  // Only streamed calls have an index in OpenAI's API.
  if (value.contains("function") && value.contains("id")) value.erase("index");
  // A call without words has no content at OpenAI.
  if (value.contains("tool_calls") && value.contains("content") && value["content"] == "") value["content"] = nullptr;
  // OpenAI's clients expect the name here.
  if (value.value("type", "") == "response.function_call_arguments.done") value.erase("name");
}

class Player {
 public:
  explicit Player(const ordered_json& frozen) : frozen_(frozen), engine_(129280) {
    model_.names = {"MODEL", "DeepSeek-V4.1-Flash"};
    model_.tokenizer = &released_tokenizer();
    model_.engine = &engine_;
    model_.system_fingerprint = "fp";
    engine_.cached_tokens = kFrozenCachedTokens;
    engine_.script = frozen.contains("ids") ? frozen["ids"].get<std::vector<int32_t>>()
                                            : *released_tokenizer().encode(frozen["text"].get<std::string>());
    if (frozen["finish"] == "length") engine_.finish = gannet::FinishReason::length;
  }

  std::vector<Event> stream() {
    engine_.by_steps = true;
    Reply reply = ask(true);
    auto& answer = std::get<std::unique_ptr<StreamedAnswer>>(reply);
    answer->start([] {});
    std::string out;
    bool complete = answer->pull(out);
    for (const auto& count : frozen_["cut"]) {
      engine_.step(count.get<size_t>());
      if (!complete) complete = answer->pull(out);
    }
    engine_.step(1000);  // a text's pieces are no tokens
    if (!complete) complete = answer->pull(out);
    EXPECT_TRUE(complete);
    return parse_events(comparable(out));
  }

  ordered_json whole() {
    engine_.by_steps = false;
    Reply reply = ask(false);
    auto& answer = std::get<std::unique_ptr<WholeAnswer>>(reply);
    answer->start([] {});
    const auto response = answer->poll();
    EXPECT_TRUE(response);
    return ordered_json::parse(comparable(response->body));
  }

 private:
  Reply ask(bool stream) {
    ordered_json body = ordered_json::parse(frozen_["body"].get<std::string>());
    body["stream"] = stream;
    if (frozen_["api"] == "chat" && stream) body["stream_options"]["include_usage"] = true;
    if (frozen_["api"] == "responses") body["store"] = false;
    HttpRequest request;
    request.body = body.dump();
    if (frozen_["api"] == "chat") return openai_chat(model_, request);
    if (frozen_["api"] == "messages") return anthropic_messages(model_, request);
    return openai_responses(model_, request);
  }

  // With the package's names for random ids, and its number of prompt tokens.
  std::string comparable(std::string text) const {
    static const std::regex kId("(chatcmpl|resp|msg)-?_?[A-Za-z0-9]{24}");
    static const std::regex kCall("call_([0-9]{2}_(ET_)?)[A-Za-z0-9]{24}");
    text = std::regex_replace(text, kCall, "call_$1*");
    text = std::regex_replace(text, kId, "ID");
    const auto tokens = static_cast<int64_t>(engine_.seen().back().prompt.size());
    std::smatch match;
    static const std::regex kCount("\"(prompt_tokens|total_tokens|prompt_cache_miss_tokens|input_tokens)\":([0-9]+)");
    std::string counted;
    while (std::regex_search(text, match, kCount)) {
      counted += match.prefix().str() + "\"" + match[1].str() + "\":";
      counted += std::to_string(std::stoll(match[2].str()) - tokens + kFrozenPromptTokens);
      text = match.suffix().str();
    }
    return counted + text;
  }

  const ordered_json& frozen_;
  ScriptedEngine engine_;
  ServedModel model_;
};

// ---- Chat Completions

// Deltas of a stream with equal neighbours joined. Empty and missing members are the same: the package names all
// members in every delta of a thinking answer.
ordered_json chat_story(std::vector<Event> events) {  // NOLINT(performance-unnecessary-value-param)
  ordered_json story = ordered_json::array();
  const auto add = [&story](ordered_json key, const std::string& text) {
    if (text.empty()) return;
    if (!story.empty() && story.back()[0] == key) {
      story.back()[1] = story.back()[1].get<std::string>() + text;
    } else {
      story.push_back({std::move(key), text});
    }
  };
  for (const auto& [name, event] : events) {
    EXPECT_EQ(event["id"], "ID");
    EXPECT_EQ(event["object"], "chat.completion.chunk");
    EXPECT_EQ(event["model"], "MODEL");
    EXPECT_EQ(event["system_fingerprint"], "fp");
    // Gannet has a last chunk without choices for it, as OpenAI does; the package puts it into the one before.
    if (event.contains("usage") && event["usage"].is_object()) story.push_back({"usage", event["usage"]});
    for (const auto& choice : event["choices"]) {
      EXPECT_EQ(choice["index"], 0);
      EXPECT_TRUE(choice["logprobs"].is_null());
      const auto& delta = choice["delta"];
      const auto text_of = [&delta](const char* key) {
        return delta.contains(key) && delta[key].is_string() ? delta[key].get<std::string>() : std::string();
      };
      add("role", text_of("role"));
      add("reasoning", text_of("reasoning_content"));
      add("content", text_of("content"));
      for (const auto& call : delta.value("tool_calls", ordered_json::array())) {
        if (call.contains("id")) story.push_back({"call", call});
        add({"arguments", call["index"]}, call["function"]["arguments"]);
      }
      if (!choice["finish_reason"].is_null()) story.push_back({"finish", choice["finish_reason"]});
    }
  }
  // The order of the two last ones is the difference told above.
  if (story.size() > 1 && story.back()[0] == "finish") std::swap(story.back(), story[story.size() - 2]);
  normalise(story);
  return story;
}

// ---- Messages and Responses

bool is_piece(const Event& event) {
  return event.name == "content_block_delta" || event.name.ends_with(".delta");
}

std::string& piece_of(ordered_json& data) {
  ordered_json& delta = data["delta"];
  if (delta.is_string()) return delta.get_ref<std::string&>();
  for (auto& [key, value] : delta.items()) {
    if (key != "type") return value.get_ref<std::string&>();
  }
  return delta["type"].get_ref<std::string&>();
}

// The events with neighbouring pieces of one kind joined: the package cuts arguments anew, Gannet has them whole.
ordered_json named_story(std::vector<Event> events) {
  std::vector<Event> joined;
  int64_t number = 0;
  for (auto& event : events) {
    if (event.data.contains("sequence_number")) {
      EXPECT_EQ(event.data["sequence_number"], number++);
      event.data.erase("sequence_number");
    }
    EXPECT_EQ(event.data["type"], event.name);
    const auto kind = [](const Event& piece) {
      ordered_json copy = piece.data;
      piece_of(copy).clear();
      return copy;
    };
    if (!joined.empty() && is_piece(event) && is_piece(joined.back()) && kind(event) == kind(joined.back())) {
      piece_of(joined.back().data) += piece_of(event.data);
    } else {
      joined.push_back(std::move(event));
    }
  }
  ordered_json story = ordered_json::array();
  for (auto& [name, data] : joined) story.push_back(std::move(data));
  normalise(story);
  return story;
}

std::vector<Event> frozen_events(const ordered_json& frozen) {
  std::vector<Event> events;
  for (const auto& event : frozen["events"]) {
    if (event.is_array()) {
      events.push_back({event[0], event[1]});
    } else {
      events.push_back({"", event});
    }
  }
  return events;
}

// Objects compare as sets of members.
nlohmann::json unordered(const ordered_json& value) {
  return nlohmann::json::parse(value.dump());
}

std::vector<ordered_json> frozen_cases() {
  std::vector<ordered_json> cases;
  std::istringstream lines(read_file("stream_api.jsonl"));
  for (std::string line; std::getline(lines, line);) cases.push_back(ordered_json::parse(line));
  return cases;
}

TEST(ProtocolFrozen, EventStreams) {
  size_t compared = 0;
  for (const auto& frozen : frozen_cases()) {
    const std::string id = frozen["id"];
    if (kFiltered.contains(id) || kCutCalls.contains(id)) continue;
    SCOPED_TRACE(id);
    const auto events = Player(frozen).stream();
    const auto story = frozen["api"] == "chat" ? chat_story : named_story;
    auto expected = unordered(story(frozen_events(frozen)));
    auto actual = unordered(story(events));
    // The package counts pieces of text where it has no ids.
    if (frozen["mode"] == "text" || !frozen.contains("ids")) {
      expected.erase(expected.size() - 1);
      actual.erase(actual.size() - 1);
    }
    EXPECT_EQ(expected, actual) << nlohmann::json::diff(expected, actual).dump(1);
    ++compared;
  }
  EXPECT_EQ(compared, 31U);
}

TEST(ProtocolFrozen, WholeResponses) {
  for (const auto& frozen : frozen_cases()) {
    const std::string id = frozen["id"];
    if (kFiltered.contains(id) || kCutCalls.contains(id)) continue;
    SCOPED_TRACE(id);
    ordered_json expected = frozen["response"];
    ordered_json actual = Player(frozen).whole();
    for (ordered_json* response : {&expected, &actual}) {
      normalise(*response);
      if (!frozen.contains("ids")) response->erase("usage");
      // vLLM's extra, which the package does not have.
      if (response->contains("choices")) (*response)["choices"][0].erase("stop_reason");
    }
    EXPECT_EQ(unordered(expected), unordered(actual))
        << nlohmann::json::diff(unordered(expected), unordered(actual)).dump(1);
  }
}

TEST(ProtocolFrozen, CallsThatAreCutOffLeaveNothing) {
  for (const auto& frozen : frozen_cases()) {
    if (!kCutCalls.contains(frozen["id"].get<std::string>())) continue;
    const auto response = Player(frozen).whole();
    if (frozen["api"] == "chat") {
      const auto& choice = response["choices"][0];
      EXPECT_EQ(choice["message"], (ordered_json{{"role", "assistant"}, {"content", "cut"}}));
      EXPECT_EQ(choice["finish_reason"], "length");
    } else {
      ASSERT_EQ(response["content"].size(), 1);
      EXPECT_EQ(response["content"][0]["text"], "cut");
      EXPECT_EQ(response["stop_reason"], "max_tokens");
    }
    for (const auto& event : Player(frozen).stream()) {
      EXPECT_EQ(event.data.dump().find("tool_"), std::string::npos) << event.data;
    }
  }
}

TEST(ProtocolFrozen, SealedReasoningIsTheReasoning) {
  for (const auto& frozen : frozen_cases()) {
    if (frozen["id"] != "responses-006") continue;
    ordered_json copy = frozen;
    ordered_json body = ordered_json::parse(frozen["body"].get<std::string>());
    body["include"] = {"reasoning.encrypted_content"};
    copy["body"] = body.dump();
    const auto item = Player(copy).whole()["output"][0];
    EXPECT_EQ(text::unseal_reasoning(item["encrypted_content"].get<std::string>()), "Let me\nthink.\n");
  }
}

}  // namespace
}  // namespace gannet::server
