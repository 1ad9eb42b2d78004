#include "fuzz.h"

// A tokenizer.json; and text through one that is in order: encoding and decoding must give the text back.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace gannet;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (const auto made = text::Tokenizer::parse(text, "input")) (void)made->encode("some text to be encoded 123");
  for (const bool plain : {false, true}) {
    const auto ids = plain ? fuzz::tokenizer().encode_plain(text) : fuzz::tokenizer().encode(text);
    if (!ids) continue;
    const auto back = fuzz::tokenizer().decode(*ids);
    fuzz::require(back.has_value() && *back == text, "decoding does not give the text back");
  }
  return 0;
}
