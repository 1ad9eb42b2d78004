#include <unicode/normalizer2.h>
#include <unicode/uchar.h>
#include <unicode/unistr.h>

#include <unordered_map>

#include "text/tokenizer.h"
#include "text/unicode_classes.h"
#include "text/utf8.h"

namespace gannet::text {
namespace {

constexpr char32_t kReplacementCharacter = 0xFFFD;
constexpr char32_t kSpaceMark = 0xE000;  // keeps a text that is one space from being stripped away

using CodePoints = std::u32string;

icu::UnicodeString decompose(std::string_view text) {
  UErrorCode status = U_ZERO_ERROR;
  const icu::Normalizer2* nfkc = icu::Normalizer2::getNFKCInstance(status);
  const icu::Normalizer2* nfd = icu::Normalizer2::getNFDInstance(status);
  GANNET_CHECK(U_SUCCESS(status));
  const auto source = icu::UnicodeString::fromUTF8({text.data(), static_cast<int32_t>(text.size())});
  icu::UnicodeString decomposed = nfd->normalize(nfkc->normalize(source, status), status);
  GANNET_CHECK(U_SUCCESS(status));
  return decomposed;
}

bool is_blank(char32_t c) {
  return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

// No combining marks, lower case, and one space for each run of blanks. The simple case mapping is the full one here:
// U+0130, the only character with a longer one, has been decomposed.
CodePoints fold(const icu::UnicodeString& decomposed) {
  CodePoints folded;
  for (int32_t i = 0; i < decomposed.length(); i = decomposed.moveIndex32(i, 1)) {
    const UChar32 c = decomposed.char32At(i);
    if (char_class(static_cast<char32_t>(c)) == CharClass::mark) continue;
    const auto lower = static_cast<char32_t>(u_tolower(c));
    if (!is_blank(lower)) {
      folded.push_back(lower);
    } else if (folded.empty() || folded.back() != ' ') {
      folded.push_back(' ');
    }
  }
  return folded;
}

std::string normalise(std::string_view text) {
  CodePoints folded = fold(decompose(text));
  if (folded == U" ") folded = kSpaceMark;
  size_t begin = 0;
  size_t end = folded.size();
  while (begin < end && char_class(folded[begin]) == CharClass::white_space) ++begin;
  while (end > begin && char_class(folded[end - 1]) == CharClass::white_space) --end;
  std::string normalised;
  for (size_t i = begin; i < end; ++i) append_utf8(normalised, folded[i] == kSpaceMark ? U' ' : folded[i]);
  return normalised;
}

// Tokens of equal key share one compressed id.
std::string key_of(const Tokenizer& tokenizer, int32_t id) {
  std::string text;
  append_lossy_utf8(text, tokenizer.token_bytes(id));
  std::string replacement;
  append_utf8(replacement, kReplacementCharacter);
  if (text.find(replacement) != std::string::npos) return std::string(tokenizer.token_text(id));
  std::string normalised = normalise(text);
  return normalised.empty() ? text : normalised;
}

}  // namespace

CompressedTokenMap compressed_token_map(const Tokenizer& tokenizer, int32_t vocab_size) {
  CompressedTokenMap map;
  std::unordered_map<std::string, int32_t> id_of;
  for (int32_t id = 0; id < vocab_size; ++id) {
    const auto [entry, is_new] = id_of.try_emplace(key_of(tokenizer, id), map.size);
    if (is_new) ++map.size;
    map.ids.push_back(entry->second);
  }
  return map;
}

}  // namespace gannet::text
