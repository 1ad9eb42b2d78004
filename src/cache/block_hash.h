#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

namespace gannet {

// Identity of a block: of its tokens and of all tokens before them.
struct BlockHash {
  uint64_t high = 0;
  uint64_t low = 0;
  bool operator==(const BlockHash&) const = default;
};

// A sequence whose ids lie in two places.
struct SplitTokens {
  std::span<const int32_t> first;
  std::span<const int32_t> second;
};

// Hashes chains of blocks with SipHash-2-4 of 128 bits under a random key of its own, so that nobody can make two
// prompts collide or tell from a hash what was asked. Callable from any thread.
class BlockHasher {
 public:
  // `block_tokens` of each block.
  explicit BlockHasher(int64_t block_tokens);
  ~BlockHasher();
  BlockHasher(const BlockHasher&) = delete;
  BlockHasher& operator=(const BlockHasher&) = delete;

  // What the first block's hash is chained to; equal salts give equal chains.
  BlockHash root(std::string_view salt) const;
  // Appends the hashes of the whole blocks in `tokens` behind those that `chain` holds already.
  void extend(BlockHash root, std::span<const int32_t> tokens, std::vector<BlockHash>& chain) const;
  void extend(BlockHash root, const SplitTokens& tokens, std::vector<BlockHash>& chain) const;

 private:
  struct Mac;
  int64_t block_tokens_;
  std::unique_ptr<Mac> mac_;
};

}  // namespace gannet

template <>
struct std::hash<gannet::BlockHash> {
  size_t operator()(const gannet::BlockHash& block) const noexcept { return block.low; }
};
