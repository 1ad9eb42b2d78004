#include "model/engram_hash.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>

namespace gannet {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using Ids = std::vector<int32_t>;
using Rows = std::vector<int64_t>;

// The released geometry; compressed ids are handed to the hash directly, so the map is the identity.
const EngramHash& released_hash() {
  static const EngramHash hash = [] {
    Ids map(released_config().vocab_size);
    std::iota(map.begin(), map.end(), 0);
    return EngramHash(released_config(), std::move(map));
  }();
  return hash;
}

Rows rows_of(int64_t engram, int32_t current, const Ids& history) {
  Rows rows(released_hash().columns(), -1);
  released_hash().rows(engram, current, history, rows.data());
  return rows;
}

const json& frozen() {
  static const json file = json::parse(std::ifstream(std::string(GANNET_TEST_DATA) + "/text/engram_map.json"));
  return file;
}

// spec: model 3.10.
TEST(EngramMultipliers, Released) {
  EXPECT_THAT(engram_multipliers(1, 99092, 4),
              ElementsAre(76632096046245, 4839876093313, 35959672319349, 73987337458391));
  EXPECT_THAT(engram_multipliers(14, 99092, 4),
              ElementsAre(67716810739261, 51510806800915, 30921347202721, 82619226485591));
}

TEST(EngramMultipliers, EqualTheFrozenOnes) {
  for (const auto& [layer, multipliers] : frozen().at("multipliers").items()) {
    EXPECT_EQ(json(engram_multipliers(std::stoll(layer), 99092, 4)), multipliers) << layer;
  }
}

// A product of a compressed id and its multiplier must fit into 63 bits.
TEST(EngramMultipliers, AreOddAndLeaveRoomForTheProduct) {
  for (const int64_t vocab : {1, 2, 300, 99092, 129280}) {
    for (const int64_t layer : {0, 1, 39, 1000}) {
      for (const int64_t multiplier : engram_multipliers(layer, vocab, 8)) {
        EXPECT_EQ(multiplier % 2, 1);
        EXPECT_GT(multiplier, 0);
        EXPECT_LE(multiplier, INT64_MAX / vocab);
      }
    }
  }
}

TEST(EngramHash, HasAColumnForEachHeadAndSize) {
  EXPECT_EQ(released_hash().columns(), 24);
}

// spec: model 7.7.
TEST(EngramHash, RowsWithinASequence) {
  EXPECT_EQ(rows_of(0, 1000, {4000, 3000, 2000}),
            (Rows{2490620,   30742399,  43508771,  49736205,  75400613,  94708347,  104378374, 122161697,
                  141932547, 152141891, 163307126, 176705110, 195924637, 213571307, 224086977, 255415522,
                  264700880, 276602590, 301365869, 305879126, 324937183, 345597303, 361149035, 375488643}));
  EXPECT_EQ(rows_of(1, 1000, {4000, 3000, 2000}),
            (Rows{13209604,  27196187,  47300532,  55442865,  67536165,  80841902,  96369704,  120577284,
                  136676902, 155853486, 162110656, 184514255, 206984010, 220009172, 236724639, 253058204,
                  262006302, 278444999, 300656409, 317176764, 330486514, 337310662, 359115282, 372276798}));
}

TEST(EngramHash, RowsOfTheFirstToken) {
  EXPECT_EQ(rows_of(0, 5, {}),
            (Rows{5412672,   18319159,  35492627,  60880252,  74962984,  95657733,  98005115,  127351390,
                  143494632, 151789366, 171410756, 185435171, 207165545, 218031260, 226330336, 247008214,
                  256353435, 276423911, 295874085, 305599364, 322749888, 348475788, 367405771, 372009279}));
  EXPECT_EQ(rows_of(1, 5, {}),
            (Rows{6939818,   27264717,  45254833,  51915000,  79245924,  86868470,  108849060, 119840903,
                  131576092, 148509516, 175704205, 177570039, 200101533, 208499118, 238497982, 243164617,
                  268363546, 274011563, 290850399, 314068096, 324530373, 351836884, 354242998, 382274687}));
}

TEST(EngramHash, PositionsBeforeTheStartReadAsPad) {
  EXPECT_EQ(rows_of(0, 5, {}), rows_of(0, 5, {2, 2, 2}));
  EXPECT_EQ(rows_of(1, 5, {17}), rows_of(1, 5, {2, 2, 17}));
  EXPECT_EQ(rows_of(1, 5, {16, 17}), rows_of(1, 5, {2, 16, 17}));
}

TEST(EngramHash, OnlyTheLastThreePredecessorsCount) {
  EXPECT_EQ(rows_of(0, 5, {9, 8, 7, 6}), rows_of(0, 5, {8, 7, 6}));
  EXPECT_NE(rows_of(0, 5, {9, 7, 6}), rows_of(0, 5, {8, 7, 6}));
}

// A 2-gram's columns know one predecessor, a 3-gram's two.
TEST(EngramHash, ShorterNgramsDoNotSeeFartherTokens) {
  const Rows near = rows_of(0, 5, {1, 2, 3});
  const Rows far = rows_of(0, 5, {9, 9, 3});
  EXPECT_TRUE(std::equal(near.begin(), near.begin() + 8, far.begin()));
  for (int64_t column = 8; column < 24; ++column) EXPECT_NE(near[column], far[column]) << column;
}

// An image's token hashes as a pad, and nothing is seen across it: its history starts anew.
TEST(EngramHash, EqualsTheFrozenSequences) {
  int64_t compared = 0;
  for (const auto& sequence : frozen().at("sequences")) {
    SCOPED_TRACE(sequence.at("name").get<std::string>());
    const auto ids = sequence.at("compressed").get<Ids>();
    const auto image = sequence.value("image_mask", Ids(ids.size(), 0));
    for (int64_t engram = 0; engram < 2; ++engram) {
      const auto expected = sequence.at("rows").at(engram == 0 ? "1" : "14").get<std::vector<Rows>>();
      ASSERT_EQ(expected.size(), ids.size());
      Ids history;
      for (size_t i = 0; i < ids.size(); ++i, ++compared) {
        if (image[i] != 0) history.clear();
        EXPECT_EQ(rows_of(engram, image[i] != 0 ? 2 : ids[i], history), expected[i]) << "position " << i;
        if (image[i] == 0) history.push_back(ids[i]);
      }
    }
  }
  EXPECT_GT(compared, 100);
}

// Each column has a range of its own, as long as its prime; together they are the table.
TEST(EngramHash, ColumnsUseTheFrozenPrimes) {
  std::vector<Rows> least(2, Rows(24, INT64_MAX));
  std::vector<Rows> most(2, Rows(24, 0));
  for (int32_t id = 0; id < 99092; id += 7) {
    for (int64_t engram = 0; engram < 2; ++engram) {
      const Rows rows = rows_of(engram, id, {id, 99091 - id, id / 2});
      for (size_t c = 0; c < 24; ++c) {
        least[engram][c] = std::min(least[engram][c], rows[c]);
        most[engram][c] = std::max(most[engram][c], rows[c]);
      }
    }
  }
  for (int64_t engram = 0; engram < 2; ++engram) {
    int64_t begin = 0;
    size_t column = 0;
    for (const auto& head_primes : frozen().at("primes").at(engram == 0 ? "1" : "14")) {
      for (const int64_t prime : head_primes.get<Rows>()) {
        EXPECT_GE(least[engram][column], begin);
        EXPECT_LT(most[engram][column], begin + prime);
        begin += prime;
        ++column;
      }
    }
    EXPECT_EQ(begin, frozen().at("num_embeddings").at(engram).get<int64_t>());
  }
}

// The pad is given as a token id and hashed as the compressed id that the map gives it.
TEST(EngramHash, ThePadIsCompressedToo) {
  Config config = released_config();
  config.engram_pad_token_id = 3;
  Ids map(config.vocab_size, 0);
  map[3] = 2;
  map[4] = 17;
  const EngramHash hash(config, map);
  EXPECT_EQ(hash.compressed(4), 17);
  Rows rows(24);
  hash.rows(0, 5, {}, rows.data());
  EXPECT_EQ(rows, rows_of(0, 5, {}));
}

}  // namespace
}  // namespace gannet
