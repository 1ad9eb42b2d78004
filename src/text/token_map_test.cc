#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "text/test_data.h"
#include "text/tokenizer.h"

namespace gannet::text {
namespace {

using nlohmann::json;

std::span<const int32_t> prefix(const CompressedTokenMap& map, size_t count) {
  return std::span(map.ids).first(count);
}

TEST(TokenMap, EqualsTheFrozenMap) {
  const json frozen = json::parse(test_data::read("engram_map.json"));
  const CompressedTokenMap map = compressed_token_map(test_data::released_tokenizer(), frozen.at("vocab_size"));
  ASSERT_EQ(map.ids.size(), frozen.at("vocab_size").get<size_t>());
  EXPECT_EQ(map.size, frozen.at("compressed_size").get<int32_t>());
  EXPECT_EQ(test_data::sha256(map.ids), frozen.at("map_sha256_int32_le").get<std::string>());
  for (const auto& [count, hash] : frozen.at("prefix_sha256_int32_le").items()) {
    EXPECT_EQ(test_data::sha256(prefix(map, std::stoul(count))), hash.get<std::string>());
  }
  for (const json& entry : frozen.at("entries")) {
    EXPECT_EQ(map.ids[entry.at(0).get<size_t>()], entry.at(1).get<int32_t>()) << entry;
  }
  for (const json& group : frozen.at("largest_groups")) {
    const auto compressed = group.at(0).get<int32_t>();
    EXPECT_EQ(std::count(map.ids.begin(), map.ids.end(), compressed), group.at(1).get<ptrdiff_t>()) << compressed;
    for (const json& id : group.at(2)) EXPECT_EQ(map.ids[id.get<size_t>()], compressed);
  }
  for (const json& sequence : frozen.at("sequences")) {
    for (size_t i = 0; i < sequence.at("ids").size(); ++i) {
      EXPECT_EQ(map.ids[sequence.at("ids").at(i).get<size_t>()], sequence.at("compressed").at(i).get<int32_t>());
    }
  }
}

TEST(TokenMap, SmallTokenizer) {
  const Tokenizer& tokenizer = test_data::small_tokenizer();
  const CompressedTokenMap map = compressed_token_map(tokenizer, tokenizer.vocab_size());
  EXPECT_EQ(map.size, 464);
  EXPECT_EQ(test_data::sha256(map.ids), "acc0683f81568e82dc43a05fa4e9559d92c1e4e39dd663bb6132abdb1a07d6e4");
}

TEST(TokenMap, IdsBeyondTheVocabularyShareOne) {
  const CompressedTokenMap map = compressed_token_map(test_data::small_tokenizer(), 580);
  EXPECT_EQ(map.size, 465);
  EXPECT_EQ(map.ids[576], 464);
  EXPECT_EQ(map.ids[579], 464);
}

}  // namespace
}  // namespace gannet::text
