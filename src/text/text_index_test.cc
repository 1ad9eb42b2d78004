#include "text/text_index.h"

#include <gtest/gtest.h>

#include <string>

namespace gannet::text {
namespace {

TEST(TextIndex, FindsWhatWasInserted) {
  std::vector<std::string> texts = {""};
  for (int i = 1; i < 1000; ++i) texts.push_back("text " + std::to_string(i));
  TextIndex index(texts.size());
  for (size_t i = 0; i < texts.size(); ++i) EXPECT_TRUE(index.insert(texts[i], static_cast<int32_t>(i)));
  for (size_t i = 0; i < texts.size(); ++i) EXPECT_EQ(index.find(texts[i]), static_cast<int32_t>(i));
  EXPECT_EQ(index.find("text"), TextIndex::kNone);
  EXPECT_FALSE(index.insert(texts[7], 1234));
  EXPECT_EQ(index.find(texts[7]), 7);
}

TEST(TextIndex, EmptyFindsNothing) {
  EXPECT_EQ(TextIndex(0).find("x"), TextIndex::kNone);
}

}  // namespace
}  // namespace gannet::text
