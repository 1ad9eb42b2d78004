#include <vector>

#include "fuzz.h"
#include "text/message_parser.h"
#include "text/utf8.h"

// What a model generates, as text in pieces or as token ids: first byte the options, then the text, cut by its own
// bytes.
namespace gannet {
namespace {

using text::Delta;

std::string joined(const std::vector<Delta>& deltas) {
  std::string all;
  const Delta* last = nullptr;
  for (const Delta& delta : deltas) {
    const bool continues =
        last != nullptr && last->kind == delta.kind && last->call == delta.call && delta.kind != Delta::Kind::tool_call;
    if (!continues) all += '\0' + std::to_string(static_cast<int>(delta.kind)) + "," + std::to_string(delta.call) + ":";
    all += delta.text;
    last = &delta;
  }
  return all;
}

text::ParseOptions options_of(uint8_t byte) {
  text::ParseOptions options;
  options.stage = (byte & 1) != 0 ? text::ParseOptions::Stage::reasoning : text::ParseOptions::Stage::content;
  options.tools = (byte & 2) != 0;
  options.starts_in_tool_calls = options.tools && (byte & 4) != 0;
  if ((byte & 8) != 0) options.stop = {"END", "\n\n"};
  return options;
}

void append(std::vector<Delta>& all, std::vector<Delta> some) {
  all.insert(all.end(), std::make_move_iterator(some.begin()), std::make_move_iterator(some.end()));
}

std::vector<Delta> parse(const text::ParseOptions& options, std::string_view text, bool in_pieces) {
  text::MessageParser parser(options);
  std::vector<Delta> deltas;
  while (!text.empty()) {
    const size_t length =
        in_pieces ? std::min<size_t>(text.size(), 1 + static_cast<uint8_t>(text.front()) % 7) : text.size();
    append(deltas, parser.push(text.substr(0, length)));
    text.remove_prefix(length);
  }
  append(deltas, parser.finish(text::StopCause::stop));
  return deltas;
}

}  // namespace
}  // namespace gannet

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace gannet;
  fuzz::Input input(data, size);
  const text::ParseOptions options = options_of(input.byte());
  const std::string_view text = input.rest().substr(0, text::valid_utf8_length(input.rest()));
  fuzz::require(joined(parse(options, text, false)) == joined(parse(options, text, true)),
                "a message depends on how its text is cut");

  text::TokenMessageParser parser(fuzz::tokenizer(), options);
  for (fuzz::Input ids(data, size); !ids.empty();) {
    const int32_t id = ids.byte() * 3;
    for (const Delta& delta : parser.push(id)) {
      fuzz::require(text::valid_utf8_length(delta.text) == delta.text.size(), "a delta splits a character");
    }
  }
  parser.finish(text::StopCause::length);
  return 0;
}
