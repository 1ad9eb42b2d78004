#include "text/chat_encoder.h"

#include <optional>
#include <string_view>

#include "text/template/control_tokens.h"
#include "text/template/prompt_writer.h"

namespace gannet::text {
namespace {

std::optional<int32_t> control_id(const Tokenizer& tokenizer, std::string_view spelling) {
  if (const auto id = tokenizer.token_id(spelling)) return id;
  if (spelling == control::kImage) return tokenizer.token_id(control::kImageOtherSpelling);
  return {};
}

}  // namespace

ParseOptions parse_options(const ChatRequest& request) {
  ParseOptions options;
  options.tools = shows_tools(request);
  options.starts_in_tool_calls = options.tools && request.tool_choice == ToolChoice::required;
  options.stop = request.sampling.stop;
  const bool continues = !request.messages.empty() && request.messages.back().prefix;
  // A message to be continued that nothing precedes loses its reasoning (render_api).
  const bool nothing_before =
      request.messages.size() == 1 && !options.tools && !has_prompt_text(request.response_format);
  const bool in_content = continues && (!request.messages.back().content.empty() || nothing_before);
  if (request.thinking && !in_content && !options.starts_in_tool_calls) {
    options.stage = ParseOptions::Stage::reasoning;
  }
  return options;
}

RenderedPrompt render_prompt(const ChatRequest& request, ChatTemplate chat_template) {
  switch (chat_template) {
    case ChatTemplate::api:
      return render_api(request);
    case ChatTemplate::checkpoint:
      return render_checkpoint(request);
    case ChatTemplate::v4:
      return render_v4(request);
  }
  return {};
}

Result<std::vector<int32_t>> encode_prompt(const RenderedPrompt& prompt, const Tokenizer& tokenizer) {
  std::vector<int32_t> ids;
  for (const PromptSegment& segment : prompt.segments) {
    if (segment.sampled != nullptr) {
      ids.insert(ids.end(), segment.sampled->ids.begin(), segment.sampled->ids.end());
      continue;
    }
    if (segment.is_control) {
      const auto id = control_id(tokenizer, segment.text);
      if (!id) return invalid_input("the tokenizer has no token '{}', which this prompt needs", segment.text);
      ids.push_back(*id);
      continue;
    }
    GANNET_TRY(const auto plain, tokenizer.encode_plain(segment.text));
    ids.insert(ids.end(), plain.begin(), plain.end());
  }
  return ids;
}

Result<std::vector<int32_t>> encode_chat(const ChatRequest& request, const Tokenizer& tokenizer,
                                         ChatTemplate chat_template) {
  return encode_prompt(render_prompt(request, chat_template), tokenizer);
}

}  // namespace gannet::text
