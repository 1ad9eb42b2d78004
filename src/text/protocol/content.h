#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "text/chat_request.h"
#include "text/protocol/fields.h"

namespace gannet::text {

// A message's content while its parts are added; parts are joined by a blank line, also empty ones.
class Content {
 public:
  // With `skips_leading_empty`, empty parts before the first text leave nothing behind.
  explicit Content(bool skips_leading_empty = false) : skips_leading_empty_(skips_leading_empty) {}

  void add_text(std::string_view text);
  void add_image(Image image);  // its offset is set here

  bool empty() const { return text_.empty() && images_.empty(); }
  const std::string& text() const { return text_; }
  bool has_images() const { return !images_.empty(); }
  // Drops the first `length` bytes of text.
  void drop_front(size_t length);
  void move_to(Message& message);

 private:
  void begin_part();

  std::string text_;
  std::vector<Image> images_;
  bool skips_leading_empty_;
  bool has_part_ = false;
};

// Accepts data: and http(s): URLs.
Status check_image_url(std::string_view url, std::string_view path);

// Removes the line that Claude Code puts first into its system prompt and that differs in every request, so that no
// prefix would ever be found in the cache: up to the prompt itself if that begins on the same line, else up to the
// end of the line and the white space after it.
void drop_billing_line(Content& content);
inline constexpr std::string_view kBillingHeader = "x-anthropic-billing-header";

// Whether `text` holds `word` (lower case ASCII), in any case.
bool contains_word(std::string_view text, std::string_view word);

}  // namespace gannet::text
