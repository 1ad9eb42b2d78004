#include "text/tokenizer_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>

#include "text/byte_alphabet.h"
#include "text/pre_tokenizer.h"
#include "text/test_data.h"

namespace gannet::text {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

// 256 byte tokens (id = byte), "ab" = 256, and two added tokens 257, 258.
json valid_file() {
  json vocab;
  for (int byte = 0; byte < 256; ++byte) vocab[spell_byte(static_cast<unsigned char>(byte))] = byte;
  vocab["ab"] = 256;
  json stages = json::array();
  for (const std::string_view pattern : kPreTokenizerPatterns) {
    stages.push_back(
        {{"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", "Isolated"}, {"invert", false}});
  }
  stages.push_back({{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}});
  return {
      {"added_tokens", {{{"id", 257}, {"content", "<one>"}}, {{"id", 258}, {"content", "<two>"}}}},
      {"normalizer", nullptr},
      {"pre_tokenizer", {{"type", "Sequence"}, {"pretokenizers", stages}}},
      {"decoder", {{"type", "ByteLevel"}}},
      {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", {"a b"}}}},
  };
}

std::string error_of(const std::string& text) {
  const auto data = read_tokenizer_json(text, "t.json");
  if (data) return "accepted";
  EXPECT_EQ(data.error().kind, ErrorKind::invalid_input);
  EXPECT_EQ(data.error().message.find('\n'), std::string::npos);
  return data.error().message;
}

std::string error_after(const std::function<void(json&)>& change) {
  json file = valid_file();
  change(file);
  return error_of(file.dump());
}

TEST(TokenizerJson, ReadsAValidFile) {
  const auto data = read_tokenizer_json(valid_file().dump(), "t.json").value();
  EXPECT_EQ(data.tokens.size(), 259u);
  EXPECT_EQ(data.id_of.find("<two>"), 258);
  EXPECT_EQ(data.byte_ids[' '], ' ');
  EXPECT_EQ(data.tokens[' '].text, "Ġ");
  EXPECT_EQ(data.tokens[' '].bytes, " ");
  EXPECT_EQ(data.merges.find('a', 'b').id, 256);
  EXPECT_TRUE(data.tokens[257].is_added);
}

TEST(TokenizerJson, AcceptsWhatMeansTheSame) {
  const auto accepts = [](const std::function<void(json&)>& change) { EXPECT_EQ(error_after(change), "accepted"); };
  accepts([](json& file) { file["model"]["merges"][0] = {"a", "b"}; });
  accepts([](json& file) { file["normalizer"] = {{"type", "Sequence"}, {"normalizers", json::array()}}; });
  accepts([](json& file) { file.erase("normalizer"); });
  accepts([](json& file) { file["model"]["dropout"] = nullptr; });
  accepts([](json& file) { file["model"]["ignore_merges"] = false; });
  accepts([](json& file) { file["added_tokens"][0] = {{"id", 257}, {"content", "<one>"}, {"lstrip", false}}; });
  accepts([](json& file) { file["model"]["vocab"]["<one>"] = 257; });  // in both lists, with one id
}

TEST(TokenizerJson, RefusesTextThatIsNoTokenizer) {
  EXPECT_THAT(error_of(""), HasSubstr("t.json: the file is empty"));
  EXPECT_THAT(error_of("{"), HasSubstr("t.json: not valid JSON"));
  EXPECT_THAT(error_of("{} {}"), HasSubstr("not valid JSON"));
  EXPECT_THAT(error_of("\"\xFF\""), HasSubstr("not valid JSON"));
  EXPECT_THAT(error_of(std::string(100'000, '[')), HasSubstr("not valid JSON"));
  EXPECT_THAT(error_of("[1]"), HasSubstr("the top level is [1]; it must be an object"));
  EXPECT_THAT(error_of("{}"), HasSubstr("pre_tokenizer is missing"));
}

TEST(TokenizerJson, RefusesOtherPipelines) {
  const auto refuses = [](const std::function<void(json&)>& change, const char* message) {
    EXPECT_THAT(error_after(change), HasSubstr(message));
  };
  const json nfc = {{"type", "NFC"}};
  const json sequence_of_nfc = {{"type", "Sequence"}, {"normalizers", json::array({nfc})}};
  const json whitespace = {{"type", "Whitespace"}};
  const json plain_text = {{"String", "x"}};
  refuses([&](json& file) { file["normalizer"] = nfc; }, R"(normalizer.type is "NFC"; it must be "Sequence")");
  refuses([&](json& file) { file["normalizer"] = sequence_of_nfc; }, "it must be null or an empty Sequence");
  refuses([&](json& file) { file["pre_tokenizer"] = whitespace; },
          R"(pre_tokenizer.type is "Whitespace"; it must be "Sequence")");
  refuses([](json& file) { file["pre_tokenizer"]["pretokenizers"][1]["pattern"]["Regex"] = "[0-9]"; },
          R"(pre_tokenizer.pretokenizers[1].pattern.Regex is "[0-9]"; it must be "[一-龥)");
  refuses([&](json& file) { file["pre_tokenizer"]["pretokenizers"][0]["pattern"] = plain_text; },
          "pre_tokenizer.pretokenizers[0].pattern.Regex is missing");
  refuses([](json& file) { file["pre_tokenizer"]["pretokenizers"][2]["behavior"] = "Removed"; },
          R"(pre_tokenizer.pretokenizers[2].behavior is "Removed"; it must be "Isolated")");
  refuses([](json& file) { file["pre_tokenizer"]["pretokenizers"][2]["invert"] = true; }, "invert is true");
  refuses([](json& file) { file["pre_tokenizer"]["pretokenizers"][3]["use_regex"] = true; }, "use_regex is true");
  refuses([](json& file) { file["pre_tokenizer"]["pretokenizers"][3].erase("use_regex"); }, "use_regex is missing");
  refuses([](json& file) { file["pre_tokenizer"]["pretokenizers"][3]["add_prefix_space"] = 0; },
          "add_prefix_space is 0; it must be false");
  refuses([](json& file) { file["pre_tokenizer"]["pretokenizers"].erase(3); }, "pretokenizers has 3 stages");
  refuses([](json& file) { file["pre_tokenizer"]["pretokenizers"].push_back(1); }, "pretokenizers[4] is 1");
  refuses([](json& file) { file["pre_tokenizer"]["pretokenizers"][0] = 5; },
          "pre_tokenizer.pretokenizers[0] is 5; it must be an object");
  refuses([](json& file) { file["decoder"] = nullptr; }, "decoder is null; it must be an object");
  refuses([](json& file) { file["decoder"]["type"] = "WordPiece"; }, R"(decoder.type is "WordPiece")");
}

TEST(TokenizerJson, RefusesOtherModels) {
  const auto refuses = [](const std::function<void(json&)>& change, const char* message) {
    EXPECT_THAT(error_after(change), HasSubstr(message));
  };
  refuses([](json& file) { file.erase("model"); }, "model is missing");
  refuses([](json& file) { file["model"] = 1; }, "model is 1; it must be an object");
  refuses([](json& file) { file["model"]["type"] = "Unigram"; }, R"(model.type is "Unigram"; it must be "BPE")");
  refuses([](json& file) { file["model"]["dropout"] = 0.1; }, "model.dropout is 0.1");
  refuses([](json& file) { file["model"]["ignore_merges"] = true; }, "model.ignore_merges is true");
  refuses([](json& file) { file["model"]["end_of_word_suffix"] = "</w>"; }, "model.end_of_word_suffix");
  refuses([](json& file) { file["model"]["merges"] = 3; }, "model.merges is 3; it must be a list of pairs");
  refuses([](json& file) { file["model"]["merges"][0] = "ab"; }, R"(model.merges[0] is "ab")");
  refuses([](json& file) { file["model"]["merges"][0] = "a b c"; }, R"(model.merges[0] is "a b c")");
  refuses([](json& file) { file["model"]["merges"][0] = {"a", 7}; }, R"(model.merges[0] is ["a",7])");
  refuses([](json& file) { file["model"]["merges"][0] = {"a"}; }, R"(model.merges[0] is ["a"])");
  refuses([](json& file) { file["model"]["merges"][0] = "xx b"; }, R"("xx" is not in model.vocab)");
  refuses([](json& file) { file["model"]["merges"][0] = "b a"; }, R"("ba" is not in model.vocab)");
  refuses([](json& file) { file["model"]["merges"].push_back("a b"); }, "the only merge of that pair");
}

TEST(TokenizerJson, RefusesWrongIds) {
  const auto refuses = [](const std::function<void(json&)>& change, const char* message) {
    EXPECT_THAT(error_after(change), HasSubstr(message));
  };
  const auto set_ab = [](json id) { return [id](json& file) { file["model"]["vocab"]["ab"] = id; }; };
  refuses([](json& file) { file["model"]["vocab"] = json::array(); }, "model.vocab is []; it must be an object");
  refuses(set_ab("256"), R"(model.vocab["ab"] is "256"; it must be an integer id)");
  refuses(set_ab(1.5), R"(model.vocab["ab"] is 1.5)");
  refuses(set_ab(-1), R"(token "ab" has id -1)");
  refuses(set_ab(97), R"(tokens "a" and "ab" both have id 97)");
  refuses(set_ab(259), "ids must be 0 to 258 without holes");
  refuses(set_ab(int64_t{1} << 40), "has id 1099511627776");
  refuses(set_ab(uint64_t{1} << 63), "must be an integer id");
  refuses([](json& file) { file["model"]["vocab"][""] = 256; }, R"(model.vocab[""] is 256)");
  refuses([](json& file) { file["model"]["vocab"].erase("Ġ"); }, "ids must be 0 to 257 without holes");
  refuses(
      [](json& file) {
        file["model"]["vocab"].erase("Ġ");
        file["model"]["vocab"]["<one>"] = 257;
      },
      "no token has id 32; the 258 tokens must have ids 0 to 257");
  refuses([](json& file) { file["model"]["vocab"].erase("ab"); }, "ids must be 0 to 257 without holes");
  refuses(
      [](json& file) {
        file["model"]["vocab"].erase("Ġ");
        file["model"]["vocab"]["space"] = 32;
      },
      R"(model.vocab lacks "Ġ", the token of byte 32)");
}

TEST(TokenizerJson, RefusesWrongAddedTokens) {
  const auto refuses = [](const std::function<void(json&)>& change, const char* message) {
    EXPECT_THAT(error_after(change), HasSubstr(message));
  };
  refuses([](json& file) { file["added_tokens"] = "x"; }, R"(added_tokens is "x"; it must be a list)");
  refuses([](json& file) { file["added_tokens"][1] = 7; }, "added_tokens[1] is 7; it must be an object");
  refuses([](json& file) { file["added_tokens"][1].erase("id"); }, "added_tokens[1].id is missing");
  refuses([](json& file) { file["added_tokens"][1]["id"] = true; }, "added_tokens[1].id is true");
  refuses([](json& file) { file["added_tokens"][1]["id"] = 257; }, R"(tokens "<one>" and "<two>" both have id 257)");
  refuses([](json& file) { file["added_tokens"][1]["content"] = ""; }, "added_tokens[1].content is empty");
  refuses([](json& file) { file["added_tokens"][1]["content"] = "<one>"; }, R"(token "<one>" has ids 257 and 258)");
  refuses([](json& file) { file["added_tokens"][1]["lstrip"] = true; }, "added_tokens[1].lstrip is true");
  // Plain text must never become an added token.
  refuses([](json& file) { file["added_tokens"].push_back({{"id", 256}, {"content", "ab"}}); }, R"("ab" is not in)");
  refuses([](json& file) { file["added_tokens"].push_back({{"id", 97}, {"content", "a"}}); }, R"("a" is not in)");
}

TEST(TokenizerJson, RefusesRepeatedTexts) {
  std::string text = valid_file().dump();
  const size_t place = text.find(R"("ab":256)");
  ASSERT_NE(place, std::string::npos);
  text.insert(place, R"("ab":255,)");
  EXPECT_THAT(error_of(text), HasSubstr(R"(model.vocab["ab"])"));
}

// Whatever is cut off or changed, there is an answer.
TEST(TokenizerJson, DamagedFilesNeverCrash) {
  const std::string text = valid_file().dump();
  for (size_t length = 0; length < text.size(); length += 13) EXPECT_NE(error_of(text.substr(0, length)), "accepted");
  for (size_t i = 0; i < text.size(); ++i) {
    std::string damaged = text;
    damaged[i] = static_cast<char>("\"0[]{},x\xFF"[i % 9]);
    (void)read_tokenizer_json(damaged, "t.json");
  }
}

}  // namespace
}  // namespace gannet::text
