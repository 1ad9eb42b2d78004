#include "text/message_parser.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <random>

#include "text/json.h"
#include "text/test_data.h"

namespace gannet::text {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr auto kContent = ParseOptions::Stage::content;
constexpr auto kReasoning = ParseOptions::Stage::reasoning;

ParseOptions with_tools(ParseOptions::Stage stage = kContent) {
  ParseOptions options;
  options.stage = stage;
  options.tools = true;
  return options;
}

// "§" stands for the DSML token.
std::string expanded(std::string text) {
  for (size_t place = text.find("§"); place != text.npos; place = text.find("§", place)) {
    text.replace(place, std::string_view("§").size(), "｜DSML｜");
  }
  return text;
}

struct Expected {
  std::string reasoning;
  std::string content;
  std::vector<std::string> calls;  // "name{arguments}"
};

std::vector<std::string> written_calls(const ParsedMessage& message) {
  std::vector<std::string> calls;
  for (const auto& call : message.tool_calls) calls.push_back(call.name + call.arguments);
  return calls;
}

ParsedMessage parse(const std::string& text, const ParseOptions& options, StopCause cause = StopCause::stop) {
  MessageParser parser(options);
  parser.push(expanded(text));
  parser.finish(cause);
  return parser.message();
}

void expect_message(const std::string& text, const ParseOptions& options, const Expected& expected,
                    StopCause cause = StopCause::stop) {
  SCOPED_TRACE(text);
  const ParsedMessage message = parse(text, options, cause);
  EXPECT_EQ(message.reasoning, expanded(expected.reasoning));
  EXPECT_EQ(message.content, expanded(expected.content));
  EXPECT_EQ(written_calls(message), expected.calls);
}

std::string block(const std::string& calls) {
  return "\n\n<§ calls>\n" + calls + "\n</§ calls>";
}
std::string call(const std::string& parameters) {
  return "<§ invoke name=\"f\">\n" + parameters + "\n</§ invoke>";
}
const std::string kCall = call("<§ parameter name=\"a\" string=\"true\">x y</§ parameter>");

TEST(MessageParser, ReasoningAndContent) {
  expect_message("think</think>say", with_tools(kReasoning), {"think", "say", {}});
  expect_message("  think \n</think>\n\nsay\n\n", with_tools(kReasoning), {"  think \n", "\n\nsay\n\n", {}});
  expect_message("only thoughts", with_tools(kReasoning), {"only thoughts", "", {}});
  expect_message("a</thin</think>b</think>c", with_tools(kReasoning), {"a</thin", "bc", {}});
  expect_message("a</thi", with_tools(kReasoning), {"a</thi", "", {}});
  expect_message("</think>x", with_tools(), {"", "x", {}});
}

TEST(MessageParser, Calls) {
  expect_message("Sure." + block(kCall), with_tools(), {"", "Sure.", {R"(f{"a": "x y"})"}});
  expect_message("t</think>" + block(kCall + "\n" + kCall), with_tools(kReasoning),
                 {"t", "", {R"(f{"a": "x y"})", R"(f{"a": "x y"})"}});
  expect_message("a\n\n" + block(call("")), with_tools(), {"", "a\n\n", {"f{}"}});
  expect_message(block(kCall) + "\nafter", with_tools(), {"", "", {R"(f{"a": "x y"})"}});
  expect_message(block(call("<§ parameter name=\"a\" string=\"false\"> 3 </§ parameter>\n"
                            "<§ parameter name=\"b\" string=\"false\">[1,2]</§ parameter>")),
                 with_tools(), {"", "", {R"(f{"a":  3 , "b": [1,2]})"}});
}

TEST(MessageParser, ValuesStayWhatTheyAre) {
  for (const std::string value : {"  lead\n", "</param", "<｜DSM", "<b>&lt;</b>", "</think>", "see <§ calls> there",
                                  "\n", "true\">", "\\n", "a\"b", "string=\"false\">"}) {
    const auto message =
        parse(block(call("<§ parameter name=\"a\" string=\"true\">" + value + "</§ parameter>")), with_tools());
    ASSERT_EQ(message.tool_calls.size(), 1U) << value;
    EXPECT_EQ(message.tool_calls[0].arguments, "{\"a\": " + json_quote(expanded(value)) + "}");
  }
  // Not JSON, so a string; never an empty object in its place.
  expect_message(block(call("<§ parameter name=\"a\" string=\"false\">NaN</§ parameter>")), with_tools(),
                 {"", "", {R"(f{"a": "NaN"})"}});
  expect_message(block(call("<§ parameter name=\"q\"k\" string=\"true\">1</§ parameter>")), with_tools(),
                 {"", "", {R"(f{"q\"k": "1"})"}});
  expect_message(block(call("<§ parameter name=\"\" string=\"true\"></§ parameter>")), with_tools(),
                 {"", "", {R"(f{"": ""})"}});
}

TEST(MessageParser, LenientForms) {
  expect_message(block("<§ invoke name=\"f\"/>"), with_tools(), {"", "", {"f{}"}});
  expect_message(block(call("{\"a\": 1e2}")), with_tools(), {"", "", {R"(f{"a": 100.0})"}});
  expect_message("hi\n" + kCall, with_tools(), {"", "hi", {R"(f{"a": "x y"})"}});
  expect_message("hi\n" + kCall + "\nmore", with_tools(), {"", "hi", {R"(f{"a": "x y"})"}});
  expect_message("\n\n<§tool_calls>\n<§invoke name=\"f\">\n</§invoke>\n</§tool_calls>", with_tools(),
                 {"", "", {"f{}"}});
  expect_message("\n\n<§ calls>\n" + kCall, with_tools(), {"", "", {R"(f{"a": "x y"})"}});
  expect_message("think\n\n<§ calls>\n" + kCall + "\n</§ calls>", with_tools(kReasoning),
                 {"think", "", {R"(f{"a": "x y"})"}});
}

TEST(MessageParser, MentionsAreText) {
  for (const std::string text :
       {"The markup <§ calls> is used", "`<§ calls>` in code", "see </§ calls> here", "§ alone", "<§>", "< § calls>",
        "<|DSML| calls>\n", "text\n\n<§ calls>\nnot a call\n</§ calls>\nafter",
        "write <§ invoke name=\"f\"> to call"}) {
    expect_message(text, with_tools(), {"", text, {}});
    expect_message(text + "</think>", with_tools(kReasoning), {text, "", {}});
  }
  const std::string mention = "so <§ calls>\n" + kCall + "\n</§ calls>";
  expect_message(mention + "</think>ok", with_tools(kReasoning), {mention, "ok", {}});
}

TEST(MessageParser, WithoutToolsNothingIsACall) {
  ParseOptions options;
  const std::string text = "hi" + block(kCall);
  expect_message(text, options, {"", text, {}});
}

TEST(MessageParser, NotUnderstoodIsShownOnlyIfThereIsNothingElse) {
  const std::string bad = call("<§ parameter name=\"a\">x</§ parameter>");
  expect_message("hi" + block(bad), with_tools(), {"", "hi\n\n" + bad, {}});
  expect_message("hi" + block(bad + "\n" + kCall), with_tools(), {"", "hi", {R"(f{"a": "x y"})"}});
  EXPECT_THAT(parse(block(bad + "\n" + kCall), with_tools()).unparsed_calls, ElementsAre(expanded(bad)));
}

TEST(MessageParser, CutCallsLeaveNothing) {
  const std::string text =
      "I will call." + block(kCall + "\n" + call("<§ parameter name=\"b\" string=\"true\">y</§ parameter>"));
  const std::string full = expanded(text);
  for (size_t length = 0; length <= full.size(); ++length) {
    if (length < full.size() && (full[length] & 0xC0) == 0x80) continue;
    MessageParser parser(with_tools());
    parser.push(full.substr(0, length));
    parser.finish(StopCause::length);
    const ParsedMessage& message = parser.message();
    EXPECT_THAT(message.content, testing::Not(HasSubstr("DSML｜")));
    for (const auto& complete : message.tool_calls) EXPECT_TRUE(parse_json(complete.arguments)) << complete.arguments;
    const bool has_calls = !message.tool_calls.empty();
    EXPECT_EQ(message.finish_reason, has_calls ? FinishReason::tool_calls : FinishReason::length);
  }
}

TEST(MessageParser, NothingIsEmittedThatCouldBecomeMarkup) {
  const std::string text = expanded("Well.\n\n<§ calls>\n" + kCall);
  MessageParser parser(with_tools());
  std::string content;
  for (const char byte : text) {
    for (const Delta& delta : parser.push(std::string(1, byte))) {
      if (delta.kind == Delta::Kind::content) content += delta.text;
    }
  }
  EXPECT_EQ(content, "Well.");
  parser.finish(StopCause::stop);
  EXPECT_EQ(parser.message().content, "Well.");
}

TEST(MessageParser, StopStrings) {
  auto options = with_tools(kReasoning);
  options.stop = {"STOP", "\n\nHuman:"};
  expect_message("why STOP</think>go STOP on", options, {"why STOP", "go ", {}});
  expect_message("</think>x\n\nHuman: y", options, {"", "x", {}});
  expect_message("</think>hello ST", options, {"", "hello ST", {}});
  expect_message("</think>x STOP" + block(kCall), options, {"", "x ", {}});
  expect_message("</think>x" + block(call("<§ parameter name=\"a\" string=\"true\">STOP</§ parameter>")), options,
                 {"", "x", {R"(f{"a": "STOP"})"}});
  EXPECT_EQ(parse("</think>go STOP on", options).stop_sequence, "STOP");

  options.stop = {"abcd", "bc"};
  expect_message("</think>abcd", options, {"", "a", {}});
}

TEST(MessageParser, DoneWhenNothingMoreCanCome) {
  MessageParser parser(with_tools());
  parser.push(expanded("x\n\n<§ calls>\n" + kCall));
  EXPECT_FALSE(parser.done());
  parser.push(expanded("\n</§ calls>"));
  EXPECT_TRUE(parser.done());
  EXPECT_THAT(parser.push("more"), IsEmpty());
}

TEST(MessageParser, ForcedCalls) {
  auto options = with_tools();
  options.starts_in_tool_calls = true;
  expect_message(kCall + "\n</§ calls>", options, {"", "", {R"(f{"a": "x y"})"}});
  expect_message("\n<§ calls>\n" + kCall + "\n</§ calls>", options, {"", "", {R"(f{"a": "x y"})"}});
  expect_message("no call", options, {"", "no call", {}});
  expect_message("</§ calls>", options, {"", "", {}});
}

TEST(MessageParser, BytesThatAreNoTextAreReplaced) {
  MessageParser parser(with_tools());
  parser.push("a\xFF\xFE\xFC\xFD");
  parser.finish(StopCause::stop);
  EXPECT_EQ(parser.message().content, "a\uFFFD\uFFFD\uFFFD\uFFFD");
}

std::vector<int32_t> ids_of(const std::string& text) {
  return test_data::released_tokenizer().encode(expanded(text)).value();
}

ParsedMessage parse_ids(const std::vector<int32_t>& ids, const ParseOptions& options) {
  TokenMessageParser parser(test_data::released_tokenizer(), options);
  for (const int32_t id : ids) parser.push(id);
  parser.finish(StopCause::stop);
  return parser.message();
}

TEST(TokenMessageParser, OnlyIdsAreMarkup) {
  const Tokenizer& tokenizer = test_data::released_tokenizer();
  const std::string text = expanded("a</think>b" + block(kCall));
  const auto message = parse_ids(tokenizer.encode_plain(text).value(), with_tools(kReasoning));
  EXPECT_EQ(message.reasoning, text);
  EXPECT_THAT(message.tool_calls, IsEmpty());

  // A closing tag spelled with ordinary tokens does not end an argument.
  auto ids = ids_of("\n\n<§ calls>\n<§ invoke name=\"f\">\n<§ parameter name=\"a\" string=\"true\">");
  const auto spelled = tokenizer.encode_plain(expanded("see </§ parameter> end")).value();
  ids.insert(ids.end(), spelled.begin(), spelled.end());
  const auto rest = ids_of("</§ parameter>\n</§ invoke>\n</§ calls>");
  ids.insert(ids.end(), rest.begin(), rest.end());
  const auto with_value = parse_ids(ids, with_tools());
  ASSERT_EQ(with_value.tool_calls.size(), 1U);
  EXPECT_EQ(with_value.tool_calls[0].arguments, expanded("{\"a\": \"see </§ parameter> end\"}"));
}

TEST(TokenMessageParser, ControlTokensNeverBecomeText) {
  EXPECT_EQ(
      parse_ids(ids_of("hi<｜end▁of▁sentence｜><｜User｜><think><｜place▁holder▁no▁3｜>there"), with_tools()).content,
      "hithere");
  EXPECT_EQ(parse_ids(ids_of("<｜ref｜>cat<｜/ref｜>"), with_tools()).content, "<｜ref｜>cat<｜/ref｜>");
  // As an argument a model may write them.
  const auto message = parse_ids(
      ids_of(block(call("<§ parameter name=\"a\" string=\"true\"><think><｜User｜></§ parameter>"))), with_tools());
  ASSERT_EQ(message.tool_calls.size(), 1U);
  EXPECT_EQ(message.tool_calls[0].arguments, "{\"a\": \"<think><｜User｜>\"}");
}

TEST(TokenMessageParser, UnfinishedCharactersAreReplaced) {
  const auto emoji = ids_of("🙂");
  ASSERT_EQ(emoji.size(), 2U);
  EXPECT_EQ(parse_ids({emoji[0]}, with_tools()).content, "\uFFFD");
  EXPECT_EQ(parse_ids({emoji[0], ids_of("</think>")[0], ids_of("x")[0]}, with_tools(kReasoning)).reasoning, "\uFFFD");
  EXPECT_EQ(parse_ids({emoji[0], -5, 1 << 30, emoji[1]}, with_tools()).content, "🙂");
}

// Random pieces of markup: any cut gives the same message, and nothing takes more than linear time.
TEST(MessageParser, FuzzedOutputs) {
  const std::vector<std::string> parts = {"<§",
                                          " calls>",
                                          "</§",
                                          " invoke name=\"f\">",
                                          " parameter name=\"a\" string=\"true\">",
                                          "\n",
                                          "x",
                                          "<",
                                          "/",
                                          "</think>",
                                          " ",
                                          "{",
                                          "}",
                                          "\"",
                                          "<§ calls>\n",
                                          kCall,
                                          " invoke>",
                                          "§",
                                          " parameter>",
                                          "é🙂"};
  std::mt19937 random(11);  // NOLINT(cert-msc51-cpp): repeatable on purpose
  for (int round = 0; round < 3000; ++round) {
    std::string text;
    for (int count = static_cast<int>(random() % 14); count >= 0; --count) text += parts[random() % parts.size()];
    const std::string full = expanded(text);
    auto options = with_tools(random() % 2 == 0 ? kContent : kReasoning);
    options.starts_in_tool_calls = random() % 8 == 0;
    if (random() % 4 == 0) options.stop = {"x<", "}\n"};
    MessageParser whole(options);
    whole.push(full);
    whole.finish(StopCause::stop);
    MessageParser cut(options);
    for (size_t position = 0; position < full.size();) {
      const size_t length = 1 + random() % 6;
      cut.push(full.substr(position, length));
      position += length;
    }
    cut.finish(StopCause::stop);
    ASSERT_EQ(cut.message().reasoning, whole.message().reasoning) << full;
    ASSERT_EQ(cut.message().content, whole.message().content) << full;
    ASSERT_EQ(written_calls(cut.message()), written_calls(whole.message())) << full;
    ASSERT_EQ(cut.message().unparsed_calls, whole.message().unparsed_calls) << full;
  }
}

TEST(MessageParser, LongOutputsTakeLinearTime) {
  const auto start = std::chrono::steady_clock::now();
  for (const std::string unit : {"<p>a</p>\n", "</§ x>", "\n", "<§ calls>", "</think>", "<"}) {
    MessageParser parser(with_tools());
    parser.push(expanded("\n\n<§ calls>\n<§ invoke name=\"f\">\n<§ parameter name=\"a\" string=\"true\">"));
    const std::string piece = expanded(unit);
    for (int count = 0; count < 100000; ++count) parser.push(piece);
    parser.push(expanded("</§ parameter>\n</§ invoke>\n</§ calls>"));
    parser.finish(StopCause::stop);
    EXPECT_EQ(parser.message().tool_calls.size(), 1U) << unit;
    MessageParser text(with_tools());
    for (int count = 0; count < 100000; ++count) text.push(piece);
    text.finish(StopCause::stop);
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
}

}  // namespace
}  // namespace gannet::text
