#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "cache/block_hash.h"
#include "engine/shared_list.h"

namespace gannet {

// The ids of a sequence: a prompt, which others may share, and an answer of its own behind it.
class TokenSequence {
 public:
  explicit TokenSequence(SharedList<int32_t> prompt) : prompt_(std::move(prompt)) {}

  size_t size() const { return prompt_.size() + answer_.size(); }
  int32_t operator[](size_t position) const {
    const auto& prompt = prompt_.values();
    return position < prompt.size() ? prompt[position] : answer_[position - prompt.size()];
  }
  void push_back(int32_t id) { answer_.push_back(id); }

  const std::vector<int32_t>& prompt() const { return prompt_.values(); }
  // In two parts, for the hashes of its blocks.
  operator SplitTokens() const { return {prompt_.values(), answer_}; }

  // Appends those from `first`, `count` of them, to `ids`.
  void append_to(std::vector<int32_t>& ids, size_t first, size_t count) const {
    for (const std::span<const int32_t> part : {std::span(prompt()), std::span<const int32_t>(answer_)}) {
      const size_t skipped = std::min(first, part.size());
      const auto taken = part.subspan(skipped, std::min(count, part.size() - skipped));
      ids.insert(ids.end(), taken.begin(), taken.end());
      first -= skipped;
      count -= taken.size();
    }
  }

 private:
  SharedList<int32_t> prompt_;
  std::vector<int32_t> answer_;
};

}  // namespace gannet
