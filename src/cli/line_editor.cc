#include "cli/line_editor.h"

#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <cwchar>
#include <optional>
#include <utility>

#include "text/utf8.h"

namespace gannet::cli {
namespace {

// The terminal hands over each key as it is pressed for as long as this lives.
class RawMode {
 public:
  RawMode() {
    active_ = ::tcgetattr(STDIN_FILENO, &previous_) == 0;
    if (!active_) return;
    termios raw = previous_;
    raw.c_iflag &= ~static_cast<tcflag_t>(BRKINT | ICRNL | INPCK | ISTRIP | IXON);
    raw.c_lflag &= ~static_cast<tcflag_t>(ECHO | ICANON | IEXTEN | ISIG);
    raw.c_cc[VMIN] = 1;
    raw.c_cc[VTIME] = 0;
    ::tcsetattr(STDIN_FILENO, TCSADRAIN, &raw);
  }
  ~RawMode() {
    if (active_) ::tcsetattr(STDIN_FILENO, TCSADRAIN, &previous_);
  }
  RawMode(const RawMode&) = delete;
  RawMode& operator=(const RawMode&) = delete;

 private:
  termios previous_{};
  bool active_ = false;
};

enum class Key {
  text,
  enter,
  interrupt,
  end_of_input,
  backspace,
  erase,
  left,
  right,
  up,
  down,
  home,
  end,
  kill_before,
  kill_behind,
  kill_word,
  clear_screen,
  other,
  gone
};

struct Press {
  Key key = Key::other;
  std::string text;  // Key::text: one character
};

std::optional<char> read_byte() {
  char byte = 0;
  return ::read(STDIN_FILENO, &byte, 1) == 1 ? std::optional(byte) : std::nullopt;
}

void write_terminal(const std::string& text) {
  for (size_t sent = 0; sent < text.size();) {
    const ssize_t count = ::write(STDOUT_FILENO, text.data() + sent, text.size() - sent);
    if (count <= 0) return;
    sent += static_cast<size_t>(count);
  }
}

// What follows ESC: "[A" and the like, and "[3~" and the like.
Key read_escape() {
  const auto opening = read_byte();
  if (!opening || (*opening != '[' && *opening != 'O')) return Key::other;
  std::string sequence;
  while (const auto byte = read_byte()) {
    sequence += *byte;
    if (*byte >= 0x40 && *byte <= 0x7E) break;
  }
  constexpr std::pair<const char*, Key> kSequences[] = {
      {"A", Key::up},    {"B", Key::down},  {"C", Key::right},  {"D", Key::left}, {"H", Key::home}, {"F", Key::end},
      {"1~", Key::home}, {"7~", Key::home}, {"3~", Key::erase}, {"4~", Key::end}, {"8~", Key::end}};
  for (const auto& [known, key] : kSequences) {
    if (sequence == known) return key;
  }
  return Key::other;
}

Press read_key() {
  const auto byte = read_byte();
  if (!byte) return {Key::gone, ""};
  constexpr std::pair<char, Key> kControls[] = {
      {'\r', Key::enter},     {'\n', Key::enter},     {3, Key::interrupt},  {4, Key::end_of_input},
      {127, Key::backspace},  {8, Key::backspace},    {1, Key::home},       {5, Key::end},
      {2, Key::left},         {6, Key::right},        {16, Key::up},        {14, Key::down},
      {21, Key::kill_before}, {11, Key::kill_behind}, {23, Key::kill_word}, {12, Key::clear_screen}};
  for (const auto& [code, key] : kControls) {
    if (*byte == code) return {key, ""};
  }
  if (*byte == 27) return {read_escape(), ""};
  if (*byte == '\t') return {Key::text, " "};
  if (static_cast<unsigned char>(*byte) < 0x20) return {Key::other, ""};
  std::string character(1, *byte);
  for (size_t length = text::utf8_length(*byte); character.size() < length;) {
    const auto next = read_byte();
    if (!next) return {Key::gone, ""};
    character += *next;
  }
  if (text::valid_utf8_length(character) != character.size()) return {Key::other, ""};
  return {Key::text, character};
}

int terminal_width() {
  constexpr int kUsualWidth = 80;
  winsize size{};
  return ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : kUsualWidth;
}

// Columns of one character; the locale decides.
int width_of(const std::string& character) {
  size_t position = 0;
  const int width = ::wcwidth(static_cast<wchar_t>(text::next_code_point(character, position)));
  return std::max(width, 0);
}

// Columns of a prompt; its colour codes have none.
int prompt_width(const std::string& prompt) {
  int width = 0;
  for (size_t i = 0; i < prompt.size();) {
    if (prompt[i] == '\x1b') {
      i = std::min(prompt.find('m', i), prompt.size() - 1) + 1;
      continue;
    }
    const size_t length = text::utf8_length(prompt[i]);
    width += width_of(prompt.substr(i, length));
    i += length;
  }
  return width;
}

void show(const std::string& prompt, const EditedLine& line) {
  const int start = prompt_width(prompt);
  int column = 0;
  const std::string part = line.visible(std::max(terminal_width() - start - 1, 1), column);
  const int cursor = start + column;
  std::string out = "\r" + prompt + part + "\x1b[K\r";
  if (cursor > 0) out += "\x1b[" + std::to_string(cursor) + "C";
  write_terminal(out);
}

// Keys that only change the line.
void edit(EditedLine& line, const Press& press) {
  switch (press.key) {
    case Key::text:
      return line.insert(press.text);
    case Key::backspace:
      return line.erase_before();
    case Key::erase:
      return line.erase_at();
    case Key::left:
      return line.move(-1);
    case Key::right:
      return line.move(1);
    case Key::home:
      return line.move_to_start();
    case Key::end:
      return line.move_to_end();
    case Key::kill_before:
      return line.erase_all_before();
    case Key::kill_behind:
      return line.erase_all_behind();
    case Key::kill_word:
      return line.erase_word_before();
    case Key::clear_screen:
      return write_terminal("\x1b[H\x1b[2J");
    default:
      return;
  }
}

}  // namespace

void EditedLine::insert(const std::string& character) {
  characters_.insert(characters_.begin() + static_cast<std::ptrdiff_t>(cursor_), character);
  ++cursor_;
}

void EditedLine::erase_before() {
  if (cursor_ == 0) return;
  --cursor_;
  erase_at();
}

void EditedLine::erase_at() {
  if (cursor_ < characters_.size()) characters_.erase(characters_.begin() + static_cast<std::ptrdiff_t>(cursor_));
}

void EditedLine::erase_word_before() {
  while (cursor_ > 0 && characters_[cursor_ - 1] == " ") erase_before();
  while (cursor_ > 0 && characters_[cursor_ - 1] != " ") erase_before();
}

void EditedLine::erase_all_before() {
  characters_.erase(characters_.begin(), characters_.begin() + static_cast<std::ptrdiff_t>(cursor_));
  cursor_ = 0;
}

void EditedLine::erase_all_behind() {
  characters_.resize(cursor_);
}

void EditedLine::move(int characters) {
  const auto target = static_cast<std::ptrdiff_t>(cursor_) + characters;
  cursor_ = static_cast<size_t>(std::clamp<std::ptrdiff_t>(target, 0, static_cast<std::ptrdiff_t>(characters_.size())));
}

void EditedLine::set(const std::string& text) {
  characters_.clear();
  for (size_t i = 0; i < text.size();) {
    const size_t length = text::utf8_length(text[i]);
    characters_.push_back(text.substr(i, length));
    i += length;
  }
  move_to_end();
}

std::string EditedLine::text() const {
  std::string joined;
  for (const auto& character : characters_) joined += character;
  return joined;
}

std::string EditedLine::visible(int width, int& cursor_column) const {
  size_t begin = cursor_;
  cursor_column = 0;
  while (begin > 0 && cursor_column + width_of(characters_[begin - 1]) <= width) {
    --begin;
    cursor_column += width_of(characters_[begin]);
  }
  std::string part;
  int used = 0;
  for (size_t i = begin; i < characters_.size() && used + width_of(characters_[i]) <= width; ++i) {
    part += characters_[i];
    used += width_of(characters_[i]);
  }
  return part;
}

LineEditor::Result LineEditor::read(const std::string& prompt, std::string& line) {
  const RawMode raw;
  EditedLine edited;
  std::string draft;                  // what was typed before the history was looked at
  size_t position = history_.size();  // in the history; its size: the draft
  for (;;) {
    show(prompt, edited);
    const Press press = read_key();
    if (press.key == Key::gone) return Result::end;
    if (press.key == Key::end_of_input && edited.empty()) {
      write_terminal("\r\n");
      return Result::end;
    }
    if (press.key == Key::interrupt || press.key == Key::enter) {
      edited.move_to_end();
      show(prompt, edited);
      write_terminal("\r\n");
      if (press.key == Key::interrupt) return Result::interrupted;
      line = edited.text();
      if (!line.empty() && (history_.empty() || history_.back() != line)) history_.push_back(line);
      return Result::line;
    }
    if (press.key == Key::up && position > 0) {
      if (position == history_.size()) draft = edited.text();
      edited.set(history_[--position]);
    } else if (press.key == Key::down && position < history_.size()) {
      ++position;
      edited.set(position == history_.size() ? draft : history_[position]);
    } else {
      edit(edited, press);
    }
  }
}

}  // namespace gannet::cli
