#include "text/pre_tokenizer.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

#include "text/unicode_classes.h"
#include "text/utf8.h"

namespace gannet::text {
namespace {

// What the patterns ask of a character, one bit each.
using Traits = uint16_t;
constexpr Traits kLetter = 1 << 0;
constexpr Traits kMark = 1 << 1;
constexpr Traits kNumber = 1 << 2;
constexpr Traits kPunctuationOrSymbol = 1 << 3;
constexpr Traits kWhiteSpace = 1 << 4;
constexpr Traits kLineBreak = 1 << 5;  // CR, LF
constexpr Traits kSpace = 1 << 6;      // U+0020
constexpr Traits kAsciiLetter = 1 << 7;
constexpr Traits kAsciiPunctuation = 1 << 8;
constexpr Traits kHanOrKana = 1 << 9;  // the second pattern's set

Traits class_traits(CharClass char_class) {
  switch (char_class) {
    case CharClass::letter:
      return kLetter;
    case CharClass::mark:
      return kMark;
    case CharClass::number:
      return kNumber;
    case CharClass::punctuation:
    case CharClass::symbol:
      return kPunctuationOrSymbol;
    case CharClass::white_space:
      return kWhiteSpace;
    case CharClass::other:
      return 0;
  }
  return 0;
}

Traits compute_traits(char32_t c) {
  Traits traits = class_traits(char_class(c));
  if (c == ' ') traits |= kSpace;
  if (c == '\r' || c == '\n') traits |= kLineBreak;
  if (c < 0x80 && (traits & kLetter)) traits |= kAsciiLetter;
  if (c < 0x80 && (traits & kPunctuationOrSymbol)) traits |= kAsciiPunctuation;
  if ((c >= 0x4E00 && c <= 0x9FA5) || (c >= 0x3040 && c <= 0x30FF)) traits |= kHanOrKana;
  return traits;
}

std::array<Traits, 0x80> compute_ascii_traits() {
  std::array<Traits, 0x80> traits{};
  for (char32_t c = 0; c < traits.size(); ++c) traits[c] = compute_traits(c);
  return traits;
}

// Traits of each character of valid UTF-8.
std::vector<Traits> traits_of(std::string_view text) {
  static const std::array<Traits, 0x80> ascii = compute_ascii_traits();
  std::vector<Traits> traits;
  traits.reserve(text.size());
  for (size_t position = 0; position < text.size();) {
    const char32_t c = next_code_point(text, position);
    traits.push_back(c < ascii.size() ? ascii[c] : compute_traits(c));
  }
  return traits;
}

// Cuts a text, given as the traits of its characters, at character indices.
class Splitter {
 public:
  explicit Splitter(std::string_view text) : text_(text), traits_(traits_of(text)) {}

  std::vector<std::string_view> split() && {
    for (size_t begin = 0; begin < traits_.size();) {
      if (is(begin, kNumber)) {
        // No alternative of the third pattern matches inside a run of numbers, so it stays whole.
        const size_t end = run_end(begin, std::min(traits_.size(), begin + 3), kNumber);
        emit(end);
        begin = end;
        continue;
      }
      const size_t end = is(begin, kHanOrKana) ? run_end(begin, traits_.size(), kHanOrKana)
                                               : run_end_without(begin, kNumber | kHanOrKana);
      split_block(begin, end);
      begin = end;
    }
    return std::move(pieces_);
  }

 private:
  bool is(size_t index, Traits any_of) const { return (traits_[index] & any_of) != 0; }

  size_t run_end(size_t begin, size_t limit, Traits any_of) const {
    while (begin < limit && is(begin, any_of)) ++begin;
    return begin;
  }

  size_t run_end_without(size_t begin, Traits any_of) const {
    while (begin < traits_.size() && !is(begin, any_of)) ++begin;
    return begin;
  }

  // The third pattern on one piece of the second: [begin, end) is all it can see.
  void split_block(size_t begin, size_t end) {
    size_t unmatched = begin;
    while (begin < end) {
      const size_t match = match_end(begin, end);
      if (match == begin) {
        ++begin;
        continue;
      }
      if (unmatched < begin) emit(begin);
      emit(match);
      begin = unmatched = match;
    }
    if (unmatched < end) emit(end);
  }

  // End of the third pattern's match at `i`, its alternatives tried in order; `i` itself if none matches.
  size_t match_end(size_t i, size_t end) const {
    const bool has_next = i + 1 < end;
    if (is(i, kAsciiPunctuation) && has_next && is(i + 1, kAsciiLetter)) return run_end(i + 1, end, kAsciiLetter);

    if (is(i, kLetter | kMark)) return run_end(i, end, kLetter | kMark);
    const bool may_lead_word = !is(i, kLineBreak | kPunctuationOrSymbol);
    if (may_lead_word && has_next && is(i + 1, kLetter | kMark)) return run_end(i + 1, end, kLetter | kMark);

    const size_t symbols = is(i, kSpace) ? i + 1 : i;
    const size_t symbols_end = run_end(symbols, end, kPunctuationOrSymbol);
    if (symbols_end > symbols) return run_end(symbols_end, end, kLineBreak);

    return is(i, kWhiteSpace) ? white_space_end(i, end) : i;
  }

  // `\s*[\r\n]+` up to the last line break of the run; else `\s+(?!\S)`, which leaves the last character to what
  // follows; else `\s+`.
  size_t white_space_end(size_t begin, size_t end) const {
    const size_t run = run_end(begin, end, kWhiteSpace);
    for (size_t i = run; i > begin; --i) {
      if (is(i - 1, kLineBreak)) return i;
    }
    if (run == end || run == begin + 1) return run;
    return run - 1;
  }

  // Ends a piece at character index `end`.
  void emit(size_t end) {
    const size_t begin_byte = byte_;
    for (; index_ < end; ++index_) byte_ += utf8_length(text_[byte_]);
    pieces_.push_back(text_.substr(begin_byte, byte_ - begin_byte));
  }

  std::string_view text_;
  std::vector<Traits> traits_;
  std::vector<std::string_view> pieces_;
  size_t index_ = 0;  // characters already in pieces
  size_t byte_ = 0;   // their bytes
};

}  // namespace

std::vector<std::string_view> pre_tokenize(std::string_view text) {
  return Splitter(text).split();
}

}  // namespace gannet::text
