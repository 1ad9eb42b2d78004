#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/message_parser.h"
#include "text/parser/markup_scanner.h"

namespace gannet::text {

// Reads one call, from "<DSML invoke" to its closing tag, while it arrives. What it has understood it does not look at
// again, so that a long argument costs linear time however it is cut.
class CallReader {
 public:
  enum class State {
    open,     // more text is needed
    read,     // a complete call: call()
    ignored,  // complete, but not understood: only raw()
    no_call,  // what follows the header is neither a parameter, an object nor the end; only in strict mode
  };

  // Strict: give up at once where the text is not a call, because it may be prose about calls.
  explicit CallReader(bool strict) : strict_(strict) {}

  // Reads on at marked[position], where the last push stopped, and moves `position` past what was used.
  State push(std::string_view marked, size_t& position);

  const ParsedCall& call() const { return call_; }
  // Everything used so far, marked.
  const std::string& raw() const { return raw_; }

 private:
  enum class Step { header, body, parameter_header, value, object, skip };
  // What one step did: needs more text, went on, or ended the call.
  enum class Progress { more, moved, ended };

  Progress step(std::string_view marked, size_t& position);
  Progress read_header(std::string_view marked, size_t& position);
  Progress read_body(std::string_view marked, size_t& position);
  Progress read_parameter_header(std::string_view marked, size_t& position);
  Progress read_value(std::string_view marked, size_t& position);
  Progress read_object(std::string_view marked, size_t& position);
  Progress skip_rest(std::string_view marked, size_t& position);

  Progress give_up(Step next);
  Progress end(State state);
  // Appends the text before the closing tag that `match` recognises to `text`; yes once the tag was passed.
  Match read_until(std::string_view marked, size_t& position, TagMatch (*match)(std::string_view), std::string& text);
  void use(std::string_view marked, size_t& position, size_t length);
  void add_parameter();
  void finish_call();

  const bool strict_;
  Step step_ = Step::header;
  State state_ = State::open;
  ParsedCall call_;
  std::string raw_;
  std::vector<std::pair<std::string, std::string>> parameters_;  // name, value as JSON
  std::string name_;                                             // of the parameter being read
  bool value_is_string_ = false;
  std::string value_;  // marked
  std::string object_;
};

}  // namespace gannet::text
