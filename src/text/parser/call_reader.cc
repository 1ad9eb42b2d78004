#include "text/parser/call_reader.h"

#include <algorithm>

#include "text/json.h"

namespace gannet::text {
namespace {

constexpr std::string_view kNameAttribute = "name=\"";
// A tag's header must fit in this; a model's names are far shorter.
constexpr size_t kLongestHeader = 4096;

struct StringAttribute {
  std::string_view text;
  bool is_string;
};
constexpr StringAttribute kStringAttributes[] = {{"\" string=\"true\"", true}, {"\" string=\"false\"", false}};

// Skips white space (at least one) and name=" ; `position` is moved to the name.
Match match_name_attribute(std::string_view text, size_t& position) {
  const size_t start = skip_space(text, position);
  if (start == text.size()) return Match::more;
  if (start == position) return Match::no;
  const std::string_view rest = text.substr(start);
  if (rest.starts_with(kNameAttribute)) {
    position = start + kNameAttribute.size();
    return Match::yes;
  }
  return kNameAttribute.starts_with(rest) ? Match::more : Match::no;
}

}  // namespace

CallReader::State CallReader::push(std::string_view marked, size_t& position) {
  Progress progress = Progress::moved;
  while (progress == Progress::moved) progress = step(marked, position);
  return state_;
}

CallReader::Progress CallReader::step(std::string_view marked, size_t& position) {
  switch (step_) {
    case Step::header:
      return read_header(marked, position);
    case Step::body:
      return read_body(marked, position);
    case Step::parameter_header:
      return read_parameter_header(marked, position);
    case Step::value:
      return read_value(marked, position);
    case Step::object:
      return read_object(marked, position);
    case Step::skip:
      return skip_rest(marked, position);
  }
  return Progress::ended;
}

void CallReader::use(std::string_view marked, size_t& position, size_t length) {
  raw_ += marked.substr(position, length);
  position += length;
}

CallReader::Progress CallReader::end(State state) {
  state_ = state;
  return Progress::ended;
}

CallReader::Progress CallReader::give_up(Step next) {
  if (strict_) return end(State::no_call);
  step_ = next;
  return Progress::moved;
}

CallReader::Progress CallReader::read_header(std::string_view marked, size_t& position) {
  const std::string_view text = marked.substr(position, kLongestHeader);
  const auto wait = [this, &text] { return text.size() == kLongestHeader ? give_up(Step::skip) : Progress::more; };
  const TagMatch word = match_invoke_word(text);
  if (word.match == Match::more) return wait();
  if (word.match == Match::no) return give_up(Step::skip);
  size_t next = word.length;
  if (const Match match = match_name_attribute(text, next); match != Match::yes) {
    return match == Match::more ? wait() : give_up(Step::skip);
  }
  const size_t quote = text.find_first_of("\"\n<>\xFF", next);
  if (quote == text.npos) return wait();
  if (text[quote] != '"') return give_up(Step::skip);
  call_.name = spelled_out(text.substr(next, quote - next));
  const size_t close = text.find_first_of("\n<>\xFF", quote);
  if (close == text.npos) return wait();
  if (text[close] != '>') return give_up(Step::skip);
  const bool closes_itself = text[close - 1] == '/';
  use(marked, position, close + 1);
  step_ = Step::body;
  if (!closes_itself) return Progress::moved;
  finish_call();
  return end(State::read);
}

CallReader::Progress CallReader::read_body(std::string_view marked, size_t& position) {
  use(marked, position, skip_space(marked, position) - position);
  if (position == marked.size()) return Progress::more;
  const std::string_view text = marked.substr(position);
  if (text[0] == '{' && parameters_.empty()) {
    step_ = Step::object;
    return Progress::moved;
  }
  if (text[0] != '<') return give_up(Step::skip);
  const TagMatch close = match_invoke_close(text);
  const TagMatch parameter = match_parameter_word(text);
  if (close.match == Match::yes) {
    use(marked, position, close.length);
    finish_call();
    return end(State::read);
  }
  if (parameter.match == Match::yes) {
    step_ = Step::parameter_header;
    return Progress::moved;
  }
  if (close.match == Match::more || parameter.match == Match::more) return Progress::more;
  return give_up(Step::skip);
}

// A parameter's name may hold anything but the DSML token: the header ends with the "string" attribute.
CallReader::Progress CallReader::read_parameter_header(std::string_view marked, size_t& position) {
  const std::string_view text = marked.substr(position, kLongestHeader);
  const auto wait = [this, &text] { return text.size() == kLongestHeader ? give_up(Step::skip) : Progress::more; };
  size_t next = match_parameter_word(text).length;
  if (const Match match = match_name_attribute(text, next); match != Match::yes) {
    return match == Match::more ? wait() : give_up(Step::skip);
  }
  const std::string_view rest = text.substr(next, text.find(kDsmlByte, next) - next);
  size_t end = rest.npos;
  size_t after = 0;
  for (const auto& [attribute, is_string] : kStringAttributes) {
    const size_t found = rest.find(attribute);
    if (found >= end) continue;
    end = found;
    after = found + attribute.size();
    value_is_string_ = is_string;
  }
  const bool is_cut = next + rest.size() == text.size();
  if (end == rest.npos) return is_cut ? wait() : give_up(Step::skip);
  after = skip_space(rest, after);
  if (after == rest.size()) return is_cut ? wait() : give_up(Step::skip);
  if (rest[after] != '>') return give_up(Step::skip);
  name_ = spelled_out(rest.substr(0, end));
  use(marked, position, next + after + 1);
  step_ = Step::value;
  return Progress::moved;
}

Match CallReader::read_until(std::string_view marked, size_t& position, TagMatch (*match)(std::string_view),
                             std::string& text) {
  while (true) {
    // A closing tag is "</", the DSML token and more; everything before it is text.
    const size_t dsml = marked.find(kDsmlByte, position);
    const bool is_last = dsml == marked.npos;
    const std::string_view before = marked.substr(position, (is_last ? marked.size() : dsml) - position);
    const size_t tag_start = before.ends_with("</") ? 2 : is_last && before.ends_with("<") ? 1 : 0;
    text += before.substr(0, before.size() - tag_start);
    use(marked, position, before.size() - tag_start);
    if (is_last) return Match::more;
    const TagMatch close = tag_start > 0 ? match(marked.substr(position)) : TagMatch{};
    if (close.match == Match::more) return Match::more;
    const size_t length = close.match == Match::yes ? close.length : dsml + 1 - position;
    if (close.match == Match::no) text += marked.substr(position, length);
    use(marked, position, length);
    if (close.match == Match::yes) return Match::yes;
  }
}

CallReader::Progress CallReader::read_value(std::string_view marked, size_t& position) {
  if (read_until(marked, position, match_parameter_close, value_) != Match::yes) return Progress::more;
  add_parameter();
  step_ = Step::body;
  return Progress::moved;
}

CallReader::Progress CallReader::read_object(std::string_view marked, size_t& position) {
  if (read_until(marked, position, match_invoke_close, object_) != Match::yes) return Progress::more;
  const auto parsed = parse_json(spelled_out(object_));
  if (!parsed || !parsed->is_object()) return end(strict_ ? State::no_call : State::ignored);
  call_.arguments = python_json(*parsed);
  return end(State::read);
}

CallReader::Progress CallReader::skip_rest(std::string_view marked, size_t& position) {
  std::string skipped;
  if (read_until(marked, position, match_invoke_close, skipped) != Match::yes) return Progress::more;
  return end(State::ignored);
}

void CallReader::add_parameter() {
  std::string text = spelled_out(value_);
  value_.clear();
  // A value that should be JSON and is not stays what it is, as a string.
  std::string json = value_is_string_ || !parse_json(text) ? json_quote(text) : std::move(text);
  const auto known = std::find_if(parameters_.begin(), parameters_.end(),
                                  [this](const auto& parameter) { return parameter.first == name_; });
  if (known != parameters_.end()) {
    known->second = std::move(json);
  } else {
    parameters_.emplace_back(name_, std::move(json));
  }
}

void CallReader::finish_call() {
  std::string& arguments = call_.arguments;
  arguments = "{";
  std::string_view separator;
  for (const auto& [name, value] : parameters_) {
    arguments += separator;
    arguments += json_quote(name);
    arguments += ": ";
    arguments += value;
    separator = ", ";
  }
  arguments += "}";
}

}  // namespace gannet::text
