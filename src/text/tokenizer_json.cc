#include "text/tokenizer_json.h"

#include <simdjson.h>

#include <algorithm>
#include <iterator>
#include <optional>

#include "text/byte_alphabet.h"
#include "text/json.h"
#include "text/pre_tokenizer.h"
#include "text/utf8.h"

namespace gannet::text {
namespace {

namespace dom = simdjson::dom;

constexpr size_t kShownBytes = 300;

// A JSON value for an error message: one line, not too long.
std::string shown(dom::element value) {
  std::string text = simdjson::minify(value);
  if (text.size() <= kShownBytes) return text;
  size_t length = kShownBytes;
  while (length > 0 && (text[length] & 0xC0) == 0x80) --length;
  return text.substr(0, length) + "...";
}

class Reader {
 public:
  explicit Reader(std::string_view name) : name_(name) {}

  Result<TokenizerData> read(std::string_view json);

 private:
  struct AddedToken {
    std::string_view text;
    int64_t id;
  };
  struct MergePair {
    std::string_view left;
    std::string_view right;
  };

  Status check_pipeline(dom::element root) const;
  Status check_pre_tokenizer(dom::element root) const;
  Status check_split(dom::element stage, std::string_view path, std::string_view pattern) const;
  Status check_model(dom::element model) const;
  Result<std::vector<AddedToken>> read_added_tokens(dom::element root) const;
  Status read_vocabulary(dom::element model, const std::vector<AddedToken>& added, TokenizerData& data) const;
  Status place_token(std::string_view text, int64_t id, TokenizerData& data) const;
  Status check_no_holes(size_t count, TokenizerData& data) const;
  Result<MergePair> read_merge(dom::element merge, size_t rank) const;
  Status read_merges(dom::element model, TokenizerData& data) const;
  Status read_byte_ids(TokenizerData& data) const;
  // TextIndex::kNone if there is no such token or it is an added one.
  static int32_t ordinary_id(std::string_view text, const TokenizerData& data);

  tl::unexpected<Error> wrong(std::string_view field, dom::element found, std::string_view right) const {
    return invalid_input("{}: {} is {}; it must be {}", name_, field, shown(found), right);
  }
  tl::unexpected<Error> missing(std::string_view field, std::string_view right) const {
    return invalid_input("{}: {} is missing; it must be {}", name_, field, right);
  }

  // The member `key` of the object at `path`.
  Result<dom::element> member(dom::element object, std::string_view path, std::string_view key,
                              std::string_view right) const {
    const std::string field = path.empty() ? std::string(key) : fmt::format("{}.{}", path, key);
    dom::object members;
    if (object.get(members) != simdjson::SUCCESS) return wrong(path, object, "an object");
    dom::element value;
    if (members.at_key(key).get(value) != simdjson::SUCCESS) return missing(field, right);
    return value;
  }

  template <class T>
  Result<T> typed_member(dom::element object, std::string_view path, std::string_view key,
                         std::string_view right) const {
    GANNET_TRY(const dom::element value, member(object, path, key, right));
    T typed;
    if (value.get(typed) != simdjson::SUCCESS) return wrong(fmt::format("{}.{}", path, key), value, right);
    return typed;
  }

  Status expect_text(dom::element object, std::string_view path, std::string_view key, std::string_view text) const {
    GANNET_TRY(const dom::element value, member(object, path, key, json_quote(text)));
    std::string_view found;
    if (value.get(found) == simdjson::SUCCESS && found == text) return {};
    return wrong(fmt::format("{}.{}", path, key), value, json_quote(text));
  }

  Status expect_false(dom::element object, std::string_view path, std::string_view key) const {
    GANNET_TRY(const dom::element value, member(object, path, key, "false"));
    bool found = true;
    if (value.get(found) == simdjson::SUCCESS && !found) return {};
    return wrong(fmt::format("{}.{}", path, key), value, "false");
  }

  std::string_view name_;
};

Result<TokenizerData> Reader::read(std::string_view json) {
  dom::parser parser;
  dom::element root;
  if (json.empty()) return invalid_input("{}: the file is empty; it must be a tokenizer.json", name_);
  if (const auto error = parser.parse(json.data(), json.size()).get(root)) {
    return invalid_input("{}: not valid JSON ({})", name_, simdjson::error_message(error));
  }
  if (!root.is_object()) return wrong("the top level", root, "an object");

  TokenizerData data;
  GANNET_TRY_STATUS(check_pipeline(root));
  GANNET_TRY(const dom::element model, member(root, "", "model", "an object"));
  GANNET_TRY_STATUS(check_model(model));
  GANNET_TRY(const auto added, read_added_tokens(root));
  GANNET_TRY_STATUS(read_vocabulary(model, added, data));
  GANNET_TRY_STATUS(read_merges(model, data));
  GANNET_TRY_STATUS(read_byte_ids(data));
  return data;
}

// Everything around the model that would change ids or text.
Status Reader::check_pipeline(dom::element root) const {
  dom::element normalizer;
  if (root["normalizer"].get(normalizer) == simdjson::SUCCESS && !normalizer.is_null()) {
    GANNET_TRY_STATUS(expect_text(normalizer, "normalizer", "type", "Sequence"));
    GANNET_TRY(const auto steps, typed_member<dom::array>(normalizer, "normalizer", "normalizers",
                                                          "an empty list: text is not normalised"));
    if (steps.begin() != steps.end()) return wrong("normalizer", normalizer, "null or an empty Sequence");
  }
  GANNET_TRY_STATUS(check_pre_tokenizer(root));
  GANNET_TRY(const dom::element decoder, member(root, "", "decoder", "of type ByteLevel"));
  return expect_text(decoder, "decoder", "type", "ByteLevel");
}

Status Reader::check_pre_tokenizer(dom::element root) const {
  constexpr size_t kSplits = std::size(kPreTokenizerPatterns);
  const std::string stages_needed = fmt::format("a list of {} Splits and one ByteLevel", kSplits);
  GANNET_TRY(const dom::element pre_tokenizer, member(root, "", "pre_tokenizer", "a Sequence of " + stages_needed));
  GANNET_TRY_STATUS(expect_text(pre_tokenizer, "pre_tokenizer", "type", "Sequence"));
  GANNET_TRY(const auto stages,
             typed_member<dom::array>(pre_tokenizer, "pre_tokenizer", "pretokenizers", stages_needed));

  size_t index = 0;
  for (const dom::element stage : stages) {
    const std::string path = fmt::format("pre_tokenizer.pretokenizers[{}]", index);
    if (index < kSplits) {
      GANNET_TRY_STATUS(check_split(stage, path, kPreTokenizerPatterns[index]));
    } else if (index == kSplits) {
      GANNET_TRY_STATUS(expect_text(stage, path, "type", "ByteLevel"));
      GANNET_TRY_STATUS(expect_false(stage, path, "add_prefix_space"));
      GANNET_TRY_STATUS(expect_false(stage, path, "use_regex"));
    } else {
      return wrong(path, stage, fmt::format("absent: the list must hold {} stages", kSplits + 1));
    }
    ++index;
  }
  if (index <= kSplits) {
    return invalid_input("{}: pre_tokenizer.pretokenizers has {} stages; it must be {}", name_, index, stages_needed);
  }
  return {};
}

Status Reader::check_split(dom::element stage, std::string_view path, std::string_view pattern) const {
  GANNET_TRY_STATUS(expect_text(stage, path, "type", "Split"));
  GANNET_TRY(const dom::element found, member(stage, path, "pattern", "an object with one Regex"));
  GANNET_TRY_STATUS(expect_text(found, fmt::format("{}.pattern", path), "Regex", pattern));
  GANNET_TRY_STATUS(expect_text(stage, path, "behavior", "Isolated"));
  return expect_false(stage, path, "invert");
}

Status Reader::check_model(dom::element model) const {
  GANNET_TRY_STATUS(expect_text(model, "model", "type", "BPE"));
  dom::element value;
  if (model["dropout"].get(value) == simdjson::SUCCESS && !value.is_null()) {
    double dropout = 1;
    if (value.get(dropout) != simdjson::SUCCESS || dropout != 0) return wrong("model.dropout", value, "null or 0");
  }
  for (const std::string_view key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    std::string_view affix = "?";
    if (model[key].get(value) != simdjson::SUCCESS || value.is_null()) continue;
    if (value.get(affix) != simdjson::SUCCESS || !affix.empty()) {
      return wrong(fmt::format("model.{}", key), value, "null or empty");
    }
  }
  if (model["ignore_merges"].get(value) == simdjson::SUCCESS) return expect_false(model, "model", "ignore_merges");
  return {};
}

Result<std::vector<Reader::AddedToken>> Reader::read_added_tokens(dom::element root) const {
  std::vector<AddedToken> added;
  dom::element list;
  if (root["added_tokens"].get(list) != simdjson::SUCCESS) return added;
  dom::array entries;
  if (list.get(entries) != simdjson::SUCCESS) return wrong("added_tokens", list, "a list");
  for (const dom::element entry : entries) {
    const std::string path = fmt::format("added_tokens[{}]", added.size());
    GANNET_TRY(const auto id, typed_member<int64_t>(entry, path, "id", "an integer"));
    GANNET_TRY(const auto text, typed_member<std::string_view>(entry, path, "content", "a string"));
    if (text.empty()) return invalid_input("{}: {}.content is empty; an added token needs text", name_, path);
    for (const std::string_view flag : {"single_word", "lstrip", "rstrip"}) {
      dom::element value;
      if (entry[flag].get(value) == simdjson::SUCCESS) GANNET_TRY_STATUS(expect_false(entry, path, flag));
    }
    added.push_back({text, id});
  }
  return added;
}

Status Reader::read_vocabulary(dom::element model, const std::vector<AddedToken>& added, TokenizerData& data) const {
  GANNET_TRY(const auto vocabulary,
             typed_member<dom::object>(model, "model", "vocab", "an object of token texts and their ids"));
  const auto entries = static_cast<size_t>(std::distance(vocabulary.begin(), vocabulary.end()));
  data.tokens.resize(entries + added.size());
  data.id_of = TextIndex(data.tokens.size());

  size_t count = 0;
  for (const auto& [text, value] : vocabulary) {
    int64_t id = 0;
    const auto field = [&, key = text] { return fmt::format("model.vocab[{}]", json_quote(key)); };
    if (text.empty()) return wrong(field(), value, "absent: a token needs text");
    if (value.get(id) != simdjson::SUCCESS) return wrong(field(), value, "an integer id");
    if (data.id_of.find(text) != TextIndex::kNone) return wrong(field(), value, "the only entry of that text");
    GANNET_TRY_STATUS(place_token(text, id, data));
    ++count;
  }
  for (const AddedToken& token : added) {
    const int32_t known_id = data.id_of.find(token.text);
    if (known_id == TextIndex::kNone) {
      GANNET_TRY_STATUS(place_token(token.text, token.id, data));
      ++count;
    } else if (known_id != token.id) {
      return invalid_input("{}: token {} has ids {} and {}; it must have one", name_, json_quote(token.text), known_id,
                           token.id);
    }
    Token& entry = data.tokens[static_cast<size_t>(token.id)];
    entry.is_added = true;
    entry.bytes = entry.text;
  }
  return check_no_holes(count, data);
}

Status Reader::place_token(std::string_view text, int64_t id, TokenizerData& data) const {
  const auto limit = static_cast<int64_t>(data.tokens.size());
  if (id < 0 || id >= limit) {
    return invalid_input("{}: token {} has id {}; with {} entries, ids must be 0 to {} without holes", name_,
                         json_quote(text), id, limit, limit - 1);
  }
  Token& token = data.tokens[static_cast<size_t>(id)];
  if (!token.text.empty()) {
    return invalid_input("{}: tokens {} and {} both have id {}; ids must be unique", name_, json_quote(token.text),
                         json_quote(text), id);
  }
  token.text = text;
  token.bytes = spelled_bytes(text).value_or(token.text);
  data.id_of.insert(token.text, static_cast<int32_t>(id));
  return {};
}

// `count` tokens have been placed, each at an id of its own.
Status Reader::check_no_holes(size_t count, TokenizerData& data) const {
  for (size_t id = 0; id < count; ++id) {
    if (!data.tokens[id].text.empty()) continue;
    return invalid_input("{}: no token has id {}; the {} tokens must have ids 0 to {} without holes", name_, id, count,
                         count - 1);
  }
  data.tokens.resize(count);
  return {};
}

// A merge is "left right" or ["left", "right"].
Result<Reader::MergePair> Reader::read_merge(dom::element merge, size_t rank) const {
  constexpr std::string_view kRight = R"("left right" or ["left", "right"])";
  const auto field = [&] { return fmt::format("model.merges[{}]", rank); };
  std::string_view text;
  if (merge.get(text) == simdjson::SUCCESS) {
    const size_t space = text.find(' ');
    if (space == std::string_view::npos || text.find(' ', space + 1) != std::string_view::npos) {
      return wrong(field(), merge, kRight);
    }
    return MergePair{text.substr(0, space), text.substr(space + 1)};
  }
  MergePair pair;
  dom::array parts;
  if (merge.get(parts) != simdjson::SUCCESS || parts.size() != 2 || parts.at(0).get(pair.left) != simdjson::SUCCESS ||
      parts.at(1).get(pair.right) != simdjson::SUCCESS) {
    return wrong(field(), merge, kRight);
  }
  return pair;
}

// Added tokens take no part in merges: plain text must never become one.
Status Reader::read_merges(dom::element model, TokenizerData& data) const {
  GANNET_TRY(const auto merges, typed_member<dom::array>(model, "model", "merges", "a list of pairs"));
  const auto count = static_cast<size_t>(std::distance(merges.begin(), merges.end()));
  data.merges = MergeTable(count);
  size_t rank = 0;
  for (const dom::element merge : merges) {
    GANNET_TRY(const MergePair pair, read_merge(merge, rank));
    const std::string merged = std::string(pair.left).append(pair.right);
    std::array<int32_t, 3> ids{};
    size_t known = 0;
    for (const std::string_view text : {pair.left, pair.right, std::string_view(merged)}) {
      ids[known] = ordinary_id(text, data);
      if (ids[known] == TextIndex::kNone) {
        return invalid_input(
            "{}: model.merges[{}] is {}, but {} is not in model.vocab or is an added token; it must be "
            "an ordinary token",
            name_, rank, shown(merge), json_quote(text));
      }
      ++known;
    }
    if (!data.merges.insert(ids[0], ids[1], {static_cast<int32_t>(rank), ids[2]})) {
      return wrong(fmt::format("model.merges[{}]", rank), merge, "the only merge of that pair");
    }
    ++rank;
  }
  return {};
}

Status Reader::read_byte_ids(TokenizerData& data) const {
  for (size_t byte = 0; byte < data.byte_ids.size(); ++byte) {
    const std::string spelling = spell_byte(static_cast<unsigned char>(byte));
    data.byte_ids[byte] = ordinary_id(spelling, data);
    if (data.byte_ids[byte] == TextIndex::kNone) {
      return invalid_input(
          "{}: model.vocab lacks {}, the token of byte {}, or it is an added token; every byte must be "
          "an ordinary token",
          name_, json_quote(spelling), byte);
    }
  }
  return {};
}

int32_t Reader::ordinary_id(std::string_view text, const TokenizerData& data) {
  const int32_t id = data.id_of.find(text);
  return id != TextIndex::kNone && data.tokens[static_cast<size_t>(id)].is_added ? TextIndex::kNone : id;
}

}  // namespace

Result<TokenizerData> read_tokenizer_json(std::string_view json, std::string_view name) {
  return Reader(name).read(json);
}

}  // namespace gannet::text
