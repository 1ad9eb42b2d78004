#include "fuzz.h"
#include "text/chat_encoder.h"
#include "text/protocol/chat_body.h"
#include "text/protocol/core_body.h"
#include "text/protocol/messages_body.h"
#include "text/protocol/responses_body.h"
#include "text/utf8.h"

// A request's body on its way to token ids: first byte the API, the rest the body.
namespace gannet {
namespace {

Result<text::ChatRequest> convert(uint8_t api, std::string_view body) {
  switch (api % 4) {
    case 0:
      return text::chat_request(body);
    case 1:
      return text::messages_request(body);
    case 2:
      return text::responses_request(body);
    default:
      return text::core_request(body);
  }
}

}  // namespace
}  // namespace gannet

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace gannet;
  fuzz::Input input(data, size);
  const uint8_t api = input.byte();
  const auto request = convert(api, input.rest());
  if (!request) {
    fuzz::require(request.error().kind == ErrorKind::invalid_input, "a body is at fault, nothing else");
    fuzz::require(!request.error().message.empty(), "every error says what is wrong");
    fuzz::require(text::valid_utf8_length(request.error().message) == request.error().message.size(),
                  "errors are UTF-8, whatever the body is");
    return 0;
  }
  for (const auto chat_template : {text::ChatTemplate::api, text::ChatTemplate::checkpoint}) {
    const auto prompt = text::render_prompt(*request, chat_template);
    for (const auto& segment : prompt.segments) {
      fuzz::require(text::valid_utf8_length(segment.text) == segment.text.size(), "prompts are UTF-8");
    }
    (void)text::encode_prompt(prompt, fuzz::tokenizer());
  }
  (void)text::parse_options(*request);
  return 0;
}
