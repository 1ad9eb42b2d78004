#include "text/grammar/pattern.h"

#include <algorithm>
#include <charconv>
#include <vector>

#include "text/utf8.h"

namespace gannet::text::grammar {
namespace {

constexpr size_t kLongestPattern = 8192;
constexpr int64_t kMostCopies = 2000;  // of the elements, once all repetitions are written out

bool is_digit(char byte) {
  return byte >= '0' && byte <= '9';
}

// Reads the expression once, from left to right.
class Scanner {
 public:
  explicit Scanner(std::string_view pattern) : pattern_(pattern) {}

  // The alternatives outside of all groups, each without its anchors.
  Result<std::string> whole(PatternScope scope) {
    if (pattern_.size() > kLongestPattern) {
      return invalid_input("the regular expression has {} bytes; at most {} are supported", pattern_.size(),
                           kLongestPattern);
    }
    groups_.push_back({});
    begin_alternative();
    while (at_ < pattern_.size()) GANNET_TRY_STATUS(step());
    if (groups_.size() > 1) return invalid_input("the regular expression has a '(' without its ')'");
    end_alternative();
    if (groups_.back().copies > kMostCopies) {
      return invalid_input("the repetitions in the regular expression come to {} elements; at most {} are supported",
                           groups_.back().copies, kMostCopies);
    }
    std::string joined;
    for (const Alternative& one : alternatives_) {
      if (!joined.empty()) joined += '|';
      const bool open = scope == PatternScope::inside;
      joined += '(';
      if (open && !one.starts) joined += R"([\s\S]*)";
      joined += "(" + std::string(one.text) + ")";
      if (open && !one.ends) joined += R"([\s\S]*)";
      joined += ')';
    }
    return joined;
  }

 private:
  struct Alternative {
    std::string_view text;
    bool starts = false;  // with ^
    bool ends = false;    // with $
  };
  struct Group {
    int64_t copies = 0;  // elements inside, repetitions written out
    int64_t last = 0;    // of the last element, which a repetition applies to
  };

  void begin_alternative() {
    starts_ = at_ < pattern_.size() && pattern_[at_] == '^';
    if (starts_) ++at_;
    begin_ = at_;
    ends_ = false;
  }

  void end_alternative() {
    const size_t end = ends_ ? at_ - 1 : at_;
    alternatives_.push_back({pattern_.substr(begin_, end - begin_), starts_, ends_});
  }

  void element(int64_t copies) {
    groups_.back().copies += copies;
    groups_.back().last = copies;
  }

  Status step() {
    const char byte = pattern_[at_];
    if (byte == '\\') return escape();
    if (byte == '[') return character_class();
    if (byte == '(') return open_group();
    if (byte == '{') return repetition();
    ++at_;
    if (byte == ')') return close_group();
    if (byte == '|' && groups_.size() == 1) {
      --at_;
      end_alternative();
      ++at_;
      begin_alternative();
    } else if (byte == '^' || byte == '$') {
      const bool last = at_ == pattern_.size() || (pattern_[at_] == '|' && groups_.size() == 1);
      if (byte == '^' || groups_.size() > 1 || !last) {
        return invalid_input("the regular expression has a '{}' in its middle, which cannot be enforced", byte);
      }
      ends_ = true;
    } else if (byte != '*' && byte != '+' && byte != '?' && byte != '|') {
      element(1);
    }
    return {};
  }

  Status escape() {
    if (at_ + 1 >= pattern_.size()) return invalid_input("the regular expression ends in a lone backslash");
    const char byte = pattern_[at_ + 1];
    if ((byte >= '1' && byte <= '9') || byte == 'k') {
      return invalid_input("the regular expression has a back reference, which cannot be enforced");
    }
    if (byte == 'b' || byte == 'B') {
      return invalid_input("the regular expression has a word boundary, which cannot be enforced");
    }
    at_ += 2;
    element(1);
    return {};
  }

  Status character_class() {
    size_t end = at_ + 1;
    while (end < pattern_.size() && pattern_[end] != ']') end += pattern_[end] == '\\' ? 2 : 1;
    if (end >= pattern_.size()) return invalid_input("the regular expression has a '[' without its ']'");
    at_ = end + 1;
    element(1);
    return {};
  }

  Status open_group() {
    ++at_;
    if (at_ < pattern_.size() && pattern_[at_] == '?') {
      const std::string_view kind = pattern_.substr(at_ + 1, 1);
      if (kind != ":") {
        return invalid_input("the regular expression has a group '(?{}', which cannot be enforced", kind);
      }
      at_ += 2;
    }
    groups_.push_back({});
    return {};
  }

  Status close_group() {
    if (groups_.size() == 1) return invalid_input("the regular expression has a ')' without its '('");
    const int64_t copies = groups_.back().copies;
    groups_.pop_back();
    element(std::max<int64_t>(copies, 1));
    return {};
  }

  // {3}, {3,} or {3,5}; anything else in braces is text.
  Status repetition() {
    size_t end = at_ + 1;
    int64_t times = 0;
    bool any_digit = false;
    while (end < pattern_.size() && (is_digit(pattern_[end]) || pattern_[end] == ',')) {
      int64_t number = 0;
      const char* first = pattern_.data() + end;
      const auto [next, error] = std::from_chars(first, pattern_.data() + pattern_.size(), number);
      if (pattern_[end] == ',') {
        ++end;
        continue;
      }
      if (error != std::errc()) number = kMostCopies;
      any_digit = true;
      times = std::max(times, std::min(number, kMostCopies));
      end = static_cast<size_t>(next - pattern_.data());
    }
    if (!any_digit || end >= pattern_.size() || pattern_[end] != '}') {
      return invalid_input("the regular expression has a '{{' that begins no repetition; write it as \\{{");
    }
    at_ = end + 1;
    Group& group = groups_.back();
    const int64_t more = std::min(group.last * std::max<int64_t>(times, 1), kMostCopies + 1);
    group.copies += more - group.last;
    group.last = more;
    return {};
  }

  std::string_view pattern_;
  size_t at_ = 0;
  std::vector<Group> groups_;
  std::vector<Alternative> alternatives_;
  size_t begin_ = 0;
  bool starts_ = false;
  bool ends_ = false;
};

}  // namespace

Result<std::string> whole_pattern(std::string_view pattern, PatternScope scope) {
  return Scanner(pattern).whole(scope);
}

std::string class_character(char32_t code_point) {
  std::string out;
  const bool special = code_point < 0x80 && !is_digit(static_cast<char>(code_point)) &&
                       !((code_point | 0x20U) >= 'a' && (code_point | 0x20U) <= 'z');
  if (special) return fmt::format("\\x{:02x}", static_cast<unsigned>(code_point));
  append_utf8(out, code_point);
  return out;
}

}  // namespace gannet::text::grammar
