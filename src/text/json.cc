#include "text/json.h"

#include <array>
#include <charconv>
#include <nlohmann/json.hpp>
#include <unordered_map>

namespace gannet::text {
namespace {

// Builds a Json from nlohmann's events: that parser checks the grammar, UTF-8 and the range of numbers, but its own
// tree has no depth limit and takes quadratic time for objects with many keys.
class Builder : public nlohmann::json_sax<nlohmann::json> {
 public:
  bool null() override { return add(Json()); }
  bool boolean(bool value) override { return add(Json(value)); }
  // A non-negative integer comes as unsigned, so the integer 0 here was written "-0".
  bool number_integer(number_integer_t value) override { return add(value == 0 ? Json(-0.0) : Json(int64_t{value})); }
  bool number_unsigned(number_unsigned_t value) override { return add(Json(uint64_t{value})); }
  bool number_float(number_float_t value, const string_t& /*spelling*/) override { return add(Json(value)); }
  bool string(string_t& value) override { return add(Json(std::move(value))); }
  bool binary(binary_t& /*value*/) override { return false; }
  bool start_object(size_t /*size*/) override { return open(Json(Json::Object())); }
  bool start_array(size_t /*size*/) override { return open(Json(Json::Array())); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }

  bool key(string_t& name) override {
    Level& level = levels_.back();
    auto& members = *level.value->object();
    const auto [known, is_new] = level.places.try_emplace(name, members.size());
    if (is_new) members.emplace_back(std::move(name), Json());
    level.member = known->second;
    return true;
  }

  bool parse_error(size_t position, const std::string& /*token*/, const nlohmann::detail::exception& error) override {
    // "[json.exception.parse_error.101] parse error at line 1, column 2: <why>; last read: <all of the token>".
    std::string_view text = error.what();
    if (const size_t start = text.find(": "); start != text.npos) text.remove_prefix(start + 2);
    message_ = fmt::format("byte {}: {}", position, text.substr(0, text.find("; last read")));
    return false;
  }

  Json take() { return std::move(root_); }
  const std::string& message() const { return message_; }

 private:
  struct Level {
    Json* value;
    size_t member = 0;                               // of an object: where the next value goes
    std::unordered_map<std::string, size_t> places;  // of an object: where each key is
  };

  // Where the next value goes. A container's address is stable while it is open: its parent only grows after it closed.
  Json* place(Json value) {
    if (levels_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    Level& level = levels_.back();
    if (auto* array = level.value->array()) {
      array->push_back(std::move(value));
      return &array->back();
    }
    Json& member = (*level.value->object())[level.member].second;
    member = std::move(value);
    return &member;
  }

  bool add(Json value) {
    place(std::move(value));
    return true;
  }

  bool open(Json container) {
    if (levels_.size() >= static_cast<size_t>(kMaxJsonDepth)) {
      message_ = fmt::format("nested deeper than {} levels", kMaxJsonDepth);
      return false;
    }
    levels_.push_back({place(std::move(container)), 0, {}});
    return true;
  }

  bool close() {
    levels_.pop_back();
    return true;
  }

  Json root_;
  std::vector<Level> levels_;
  std::string message_;
};

// The shortest decimal digits that give back `value`: "d" or "d.ddd" times ten to the exponent.
struct Decimal {
  std::string digits;  // without the point
  int exponent = 0;    // of the first digit
  bool negative = false;
};

Decimal shortest_decimal(double value) {
  std::array<char, 32> buffer;
  const auto end =
      std::to_chars(buffer.data(), buffer.data() + buffer.size(), value, std::chars_format::scientific).ptr;
  Decimal decimal;
  for (const char* next = buffer.data(); next != end; ++next) {
    if (*next == '-') decimal.negative = true;
    if (*next >= '0' && *next <= '9') decimal.digits += *next;
    if (*next == 'e') {
      const char* exponent = next[1] == '+' ? next + 2 : next + 1;
      std::from_chars(exponent, end, decimal.exponent);
      break;
    }
  }
  return decimal;
}

// Positional notation for exponents in [lowest, 15], scientific outside.
std::string format_float(double value, int lowest, std::string_view exponent_format) {
  const Decimal decimal = shortest_decimal(value);
  const std::string& digits = decimal.digits;
  const auto count = static_cast<int>(digits.size());
  std::string out = decimal.negative ? "-" : "";
  if (decimal.exponent < lowest || decimal.exponent >= 16) {
    out += digits[0];
    if (count > 1) out += "." + digits.substr(1);
    return out + fmt::format(fmt::runtime(exponent_format), decimal.exponent);
  }
  if (decimal.exponent < 0) return out + "0." + std::string(static_cast<size_t>(-decimal.exponent - 1), '0') + digits;
  const int whole = decimal.exponent + 1;
  if (count <= whole) return out + digits + std::string(static_cast<size_t>(whole - count), '0') + ".0";
  return out + digits.substr(0, static_cast<size_t>(whole)) + "." + digits.substr(static_cast<size_t>(whole));
}

struct Style {
  std::string_view comma;
  std::string_view colon;
  int lowest_positional_exponent;
  std::string_view exponent_format;
};

constexpr Style kPython{", ", ": ", -4, "e{:+03d}"};
constexpr Style kSpaced{", ", ": ", -5, "e{:+d}"};
constexpr Style kCompact{",", ":", -5, "e{:+d}"};

void append_quoted(std::string& out, std::string_view text) {
  out += '"';
  append_json_escaped(out, text);
  out += '"';
}

// Depth is bounded by parse_json and by the few levels that our own code adds.
void write(std::string& out, const Json& value, const Style& style) {
  if (const auto* object = value.object()) {
    out += '{';
    std::string_view separator;
    for (const auto& [key, member] : *object) {
      out += separator;
      append_quoted(out, key);
      out += style.colon;
      write(out, member, style);
      separator = style.comma;
    }
    out += '}';
  } else if (const auto* array = value.array()) {
    out += '[';
    std::string_view separator;
    for (const auto& element : *array) {
      out += separator;
      write(out, element, style);
      separator = style.comma;
    }
    out += ']';
  } else if (const auto* text = value.string()) {
    append_quoted(out, *text);
  } else if (const auto* flag = value.boolean()) {
    out += *flag ? "true" : "false";
  } else if (const auto* whole = std::get_if<int64_t>(&value.value())) {
    out += std::to_string(*whole);
  } else if (const auto* natural = std::get_if<uint64_t>(&value.value())) {
    out += std::to_string(*natural);
  } else if (const auto* real = std::get_if<double>(&value.value())) {
    out += format_float(*real, style.lowest_positional_exponent, style.exponent_format);
  } else {
    out += "null";
  }
}

}  // namespace

const Json* Json::find(std::string_view key) const {
  const auto* members = object();
  if (members == nullptr) return nullptr;
  for (const auto& [name, value] : *members) {
    if (name == key) return &value;
  }
  return nullptr;
}

std::string_view json_kind(const Json& value) {
  if (value.is_null()) return "null";
  if (value.boolean() != nullptr) return "a boolean";
  if (value.is_number()) return "a number";
  if (value.is_string()) return "a string";
  return value.is_array() ? "a list" : "an object";
}

Result<Json> parse_json(std::string_view text) {
  // The parser takes a NUL for the end of the text and skips a byte order mark; neither is JSON.
  if (const size_t nul = text.find('\0'); nul != text.npos) return invalid_input("byte {}: a NUL character", nul);
  if (text.starts_with("\xEF\xBB\xBF")) return invalid_input("byte 0: a byte order mark");
  Builder builder;
  if (!nlohmann::json::sax_parse(text.begin(), text.end(), &builder)) return invalid_input("{}", builder.message());
  return builder.take();
}

std::string python_json(const Json& value) {
  std::string out;
  write(out, value, kPython);
  return out;
}

std::string spaced_json(const Json& value) {
  std::string out;
  write(out, value, kSpaced);
  return out;
}

std::string compact_json(const Json& value) {
  std::string out;
  write(out, value, kCompact);
  return out;
}

std::string json_quote(std::string_view text) {
  std::string out;
  append_quoted(out, text);
  return out;
}

void append_json_escaped(std::string& out, std::string_view text) {
  for (const char byte : text) {
    switch (byte) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      case '\b':
        out += "\\b";
        break;
      case '\f':
        out += "\\f";
        break;
      default:
        if (static_cast<unsigned char>(byte) < 0x20) {
          out += fmt::format("\\u{:04x}", static_cast<unsigned>(byte));
        } else {
          out += byte;
        }
    }
  }
}

std::string python_float(double value) {
  return format_float(value, kPython.lowest_positional_exponent, kPython.exponent_format);
}

}  // namespace gannet::text
