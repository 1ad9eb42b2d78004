#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "text/tokenizer.h"

// What the fuzz targets share.
namespace gannet::fuzz {

// What the input must never bring about, beside crashes.
inline void require(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "broken: %s\n", what);
  std::abort();
}

inline const text::Tokenizer& tokenizer() {
  static const auto loaded = text::Tokenizer::load(std::string(GANNET_TEST_DATA) + "/text/tokenizer-test.json");
  require(loaded.has_value(), "the test tokenizer cannot be read");
  return *loaded;
}

// The first byte, and the rest behind it.
class Input {
 public:
  Input(const uint8_t* data, size_t size) : text_(reinterpret_cast<const char*>(data), size) {}
  // 0 at the end.
  uint8_t byte() {
    if (text_.empty()) return 0;
    const auto first = static_cast<uint8_t>(text_.front());
    text_.remove_prefix(1);
    return first;
  }
  std::string_view rest() const { return text_; }
  bool empty() const { return text_.empty(); }

 private:
  std::string_view text_;
};

}  // namespace gannet::fuzz
