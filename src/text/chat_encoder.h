#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "text/chat_request.h"
#include "text/message_parser.h"
#include "text/tokenizer.h"

namespace gannet::text {

// Which rules turn a conversation into a prompt (docs/text.md compares them).
enum class ChatTemplate {
  api,         // the official API's rules for V4.1, byte for byte; the default
  checkpoint,  // the rules of the encoder that ships with the V4.1 checkpoint
  v4,          // the official API's rules for DeepSeek-V4, kept as a regression target
};

// A stretch of prompt: either the spelling of exactly one control token, or text that must never become one.
struct PromptSegment {
  std::string text;
  bool is_control = false;
  std::shared_ptr<const SampledMessage> sampled = nullptr;  // these ids instead of a text, which is empty then
};

struct RenderedPrompt {
  std::vector<PromptSegment> segments;  // no two plain segments in a row
  std::vector<Image> images;            // in the order of their placeholders
  std::string text() const;             // all segments joined
};

// How the answer to this request must be parsed.
ParseOptions parse_options(const ChatRequest& request);

// Never fails: bodies were checked when they became a ChatRequest.
RenderedPrompt render_prompt(const ChatRequest& request, ChatTemplate chat_template = ChatTemplate::api);

// Token ids of a prompt: sampled segments as they are, control segments by their spelling's id, each maximal run of
// plain text without added tokens (so template text and user text of one run are tokenised together, and user text
// never becomes a control token). Error (invalid_input): the tokenizer lacks a control token that the prompt needs.
Result<std::vector<int32_t>> encode_prompt(const RenderedPrompt& prompt, const Tokenizer& tokenizer);

// render_prompt and encode_prompt in one.
Result<std::vector<int32_t>> encode_chat(const ChatRequest& request, const Tokenizer& tokenizer,
                                         ChatTemplate chat_template = ChatTemplate::api);

}  // namespace gannet::text
