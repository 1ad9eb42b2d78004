#pragma once

#include <cstddef>
#include <string>
#include <string_view>

// Generated text inside the parser: UTF-8 in which the two markup tokens are single bytes that UTF-8 never uses. Text
// can so be told from markup that it merely looks like.

namespace gannet::text {

inline constexpr char kThinkEndByte = '\xFE';
inline constexpr char kDsmlByte = '\xFF';
// Around the spelling of any other control token.
inline constexpr char kControlStartByte = '\xFC';
inline constexpr char kControlEndByte = '\xFD';

// Appends text that holds no markup; bytes that UTF-8 never uses become U+FFFD.
void append_unmarked(std::string& out, std::string_view text);
void append_control(std::string& out, std::string_view spelling);

// The text with all its control tokens spelled out: what an argument of a call says.
std::string spelled_out(std::string_view marked);
// The same for text that people read: control tokens that are no markup leave nothing behind.
std::string readable(std::string_view marked);

// Finds the spellings of markup tokens in text that comes in pieces.
class MarkupLexer {
 public:
  // Appends to `out` what is certain; keeps back an end that could become a token's spelling.
  void push(std::string_view piece, std::string& out);
  void finish(std::string& out);

 private:
  std::string pending_;
};

// The answer to "does this text begin with ...?" when more text may come.
enum class Match { no, yes, more };

// White space inside a tag and between the tags that open a block: more than this and it is no markup.
inline constexpr size_t kMostTagSpace = 64;

struct TagMatch {
  Match match = Match::no;
  size_t length = 0;  // bytes of the tag, if match is yes
};

// `marked` must begin with '<'. Each tag may have a space before its name.
// <DSML calls>, also under the names that the model is known to confuse it with.
TagMatch match_calls_open(std::string_view marked);
TagMatch match_calls_close(std::string_view marked);
// "<DSML invoke" up to and without the character after the word.
TagMatch match_invoke_word(std::string_view marked);
TagMatch match_invoke_close(std::string_view marked);
TagMatch match_parameter_word(std::string_view marked);
TagMatch match_parameter_close(std::string_view marked);

bool is_space(char byte);
// Offset of the first byte that is no white space (space, tab, CR, LF).
size_t skip_space(std::string_view text, size_t position);

}  // namespace gannet::text
