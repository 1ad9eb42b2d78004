#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"

namespace gannet::text {

struct ParseOptions {
  // Where the prompt left off.
  enum class Stage { content, reasoning };
  Stage stage = Stage::content;
  bool tools = false;                 // without declared tools no text is ever taken for a call
  bool starts_in_tool_calls = false;  // the prompt already opened the block of calls (tool_choice "required")
  std::vector<std::string> stop;      // end the message before the first of these in its content
  // Token mode: control tokens but the end of sentence show by their spelling and are never markup.
  bool shows_control = false;
};

// The two tokens that structure generated text.
enum class Markup { think_end, dsml };

// Why generation ended, as the engine reports it.
enum class StopCause { stop, length, content_filter };

// Why the message ended, in Chat Completions terms.
enum class FinishReason { stop, length, content_filter, tool_calls };
std::string_view finish_reason_name(FinishReason reason);

struct Delta {
  enum class Kind {
    reasoning,  // `text` continues the reasoning
    content,    // `text` continues the content
    tool_call,  // call number `call` begins; `text` is its name
    arguments,  // `text` continues the arguments of call number `call`
  };
  Kind kind = Kind::content;
  int call = 0;  // 0, 1, 2...
  std::string text;
};

struct ParsedCall {
  std::string name;
  std::string arguments;  // always a JSON object, Python style: {"k": v, ...}
};

struct ParsedMessage {
  std::string reasoning;
  std::string content;
  std::vector<ParsedCall> tool_calls;
  FinishReason finish_reason = FinishReason::stop;
  std::optional<std::string> stop_sequence;  // the stop string that ended the message
  // Markup of calls that could not be understood or were cut off: not part of the message, worth a log line. When
  // the message has no other call, a call that was complete but not understood is shown as content instead.
  std::vector<std::string> unparsed_calls;
};

// Turns generated text into a message while it arrives. The result does not depend on how the text is cut into pieces;
// no delta holds anything that later text could turn into markup; a call is announced only when it is complete and
// understood, so that an answer cut by max_tokens holds no half calls.
class MessageParser {
 public:
  explicit MessageParser(ParseOptions options);
  MessageParser(MessageParser&&) noexcept;
  MessageParser& operator=(MessageParser&&) noexcept;
  ~MessageParser();

  // Text mode: the spellings of </think> and of the DSML token count as those tokens.
  std::vector<Delta> push(std::string_view text);
  // Token mode: text that is never markup, the two tokens that are, and other control tokens by their spelling. Do not
  // mix with push().
  std::vector<Delta> push_plain(std::string_view text);
  std::vector<Delta> push_markup(Markup token);
  std::vector<Delta> push_control(std::string_view spelling);
  // Must be called once at the end; returns what was held back.
  std::vector<Delta> finish(StopCause cause);

  // A stop string was found (or the block of calls ended): nothing more will come out, generation can stop.
  bool done() const;
  // Whether the next token would still belong to the reasoning; for counting reasoning tokens.
  bool in_reasoning() const;
  // All that was returned as deltas so far, joined; complete after finish().
  const ParsedMessage& message() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// The same for token ids: decodes them, keeps characters whole, and takes only the ids of </think> and of the DSML
// token for markup. Other control tokens (end of sentence, roles, placeholders) never become text; grounding tokens do.
class TokenMessageParser {
 public:
  // The tokenizer must outlive the parser.
  TokenMessageParser(const Tokenizer& tokenizer, ParseOptions options);

  std::vector<Delta> push(int32_t id);
  std::vector<Delta> finish(StopCause cause);

  bool done() const { return parser_.done(); }
  bool in_reasoning() const { return parser_.in_reasoning(); }
  const ParsedMessage& message() const { return parser_.message(); }

 private:
  const Tokenizer* tokenizer_;
  std::optional<int32_t> think_end_;
  std::optional<int32_t> dsml_;
  std::optional<int32_t> end_;
  bool shows_control_;
  MessageParser parser_;
  Detokenizer detokenizer_;
};

}  // namespace gannet::text
