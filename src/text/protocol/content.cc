#include "text/protocol/content.h"

#include <algorithm>
#include <utility>

#include "text/unicode_classes.h"
#include "text/utf8.h"

namespace gannet::text {
namespace {

// How Claude Code's own prompt begins; gateways join it to the header without a line break.
constexpr std::string_view kPromptStart = "You are";

char lower(char byte) {
  return byte >= 'A' && byte <= 'Z' ? static_cast<char>(byte - 'A' + 'a') : byte;
}

bool starts_with_ignoring_case(std::string_view text, std::string_view prefix) {
  return text.size() >= prefix.size() &&
         std::equal(prefix.begin(), prefix.end(), text.begin(), [](char a, char b) { return lower(a) == lower(b); });
}

size_t white_space_length(std::string_view text, size_t position) {
  size_t next = position;
  while (next < text.size()) {
    size_t after = next;
    if (char_class(next_code_point(text, after)) != CharClass::white_space) break;
    next = after;
  }
  return next - position;
}

}  // namespace

void Content::begin_part() {
  const bool is_first = !has_part_ || (skips_leading_empty_ && empty());
  if (!is_first) text_ += "\n\n";
  has_part_ = true;
}

void Content::add_text(std::string_view text) {
  begin_part();
  text_ += text;
}

void Content::add_image(Image image) {
  begin_part();
  image.offset = text_.size();
  images_.push_back(std::move(image));
}

void Content::drop_front(size_t length) {
  text_.erase(0, length);
  for (Image& image : images_) image.offset -= std::min(image.offset, length);
}

void Content::move_to(Message& message) {
  message.content = std::move(text_);
  message.images = std::move(images_);
}

Status check_image_url(std::string_view url, std::string_view path) {
  for (const std::string_view scheme : {"data:", "http://", "https://"}) {
    if (starts_with_ignoring_case(url, scheme)) return {};
  }
  return invalid_input("{}: {} is no image URL; expected a data:, http: or https: URL", path, shown(url));
}

void drop_billing_line(Content& content) {
  const std::string& text = content.text();
  if (!text.starts_with(kBillingHeader)) return;
  const size_t line_end = std::min(text.find('\n'), text.size());
  if (const size_t prompt = text.find(kPromptStart); prompt < line_end) return content.drop_front(prompt);
  if (line_end == text.size()) return content.drop_front(line_end);
  content.drop_front(line_end + 1 + white_space_length(text, line_end + 1));
}

bool contains_word(std::string_view text, std::string_view word) {
  return std::search(text.begin(), text.end(), word.begin(), word.end(),
                     [](char a, char b) { return lower(a) == b; }) != text.end();
}

}  // namespace gannet::text
