#pragma once

#include <string>
#include <vector>

namespace gannet::cli {

// Reads lines from a terminal with the usual keys: arrows, Home, End, Ctrl-A, -E, -K, -U, -W, -L and a history.
class LineEditor {
 public:
  enum class Result { line, interrupted, end };  // Ctrl-C; Ctrl-D on an empty line, or the terminal is gone

  // Shows `prompt`, which may hold colour codes, and reads one line into `line`.
  Result read(const std::string& prompt, std::string& line);

 private:
  std::vector<std::string> history_;
};

// The line being edited, apart from any terminal: characters, not bytes.
class EditedLine {
 public:
  void insert(const std::string& character);
  void erase_before();
  void erase_at();
  void erase_word_before();
  void erase_all_before();
  void erase_all_behind();
  void move(int characters);
  void move_to_start() { cursor_ = 0; }
  void move_to_end() { cursor_ = characters_.size(); }
  void set(const std::string& text);

  std::string text() const;
  bool empty() const { return characters_.empty(); }
  // The part that fits into `width` columns with the cursor in it, and the cursor's column in that part.
  std::string visible(int width, int& cursor_column) const;

 private:
  std::vector<std::string> characters_;
  size_t cursor_ = 0;
};

}  // namespace gannet::cli
