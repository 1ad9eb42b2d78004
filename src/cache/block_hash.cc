#include "cache/block_hash.h"

#include <openssl/evp.h>
#include <openssl/params.h>
#include <openssl/rand.h>

#include <cstring>

#include "base/error.h"

namespace gannet {
namespace {

constexpr size_t kHashBytes = 16;
constexpr size_t kKeyBytes = 16;

struct FreeMac {
  void operator()(EVP_MAC* mac) const { EVP_MAC_free(mac); }
  void operator()(EVP_MAC_CTX* context) const { EVP_MAC_CTX_free(context); }
};

}  // namespace

struct BlockHasher::Mac {
  std::unique_ptr<EVP_MAC, FreeMac> mac{EVP_MAC_fetch(nullptr, "SIPHASH", nullptr)};
  std::array<unsigned char, kKeyBytes> key{};

  Mac() {
    GANNET_CHECK(mac != nullptr);
    GANNET_CHECK(RAND_bytes(key.data(), kKeyBytes) == 1);
  }

  using Context = std::unique_ptr<EVP_MAC_CTX, FreeMac>;
  Context context() const {
    Context made(EVP_MAC_CTX_new(mac.get()));
    GANNET_CHECK(made != nullptr);
    return made;
  }

  BlockHash hash(EVP_MAC_CTX* context, const void* first, size_t first_bytes, const void* second,
                 size_t second_bytes) const {
    size_t size = kHashBytes;
    const OSSL_PARAM parameters[] = {OSSL_PARAM_construct_size_t("size", &size), OSSL_PARAM_construct_end()};
    std::array<unsigned char, kHashBytes> bytes{};
    const bool done = EVP_MAC_init(context, key.data(), kKeyBytes, parameters) == 1 &&
                      EVP_MAC_update(context, static_cast<const unsigned char*>(first), first_bytes) == 1 &&
                      EVP_MAC_update(context, static_cast<const unsigned char*>(second), second_bytes) == 1 &&
                      EVP_MAC_final(context, bytes.data(), &size, kHashBytes) == 1;
    GANNET_CHECK(done && size == kHashBytes);
    BlockHash result;
    std::memcpy(&result.high, bytes.data(), sizeof(uint64_t));
    std::memcpy(&result.low, bytes.data() + sizeof(uint64_t), sizeof(uint64_t));
    return result;
  }
};

BlockHasher::BlockHasher(int64_t block_tokens) : block_tokens_(block_tokens), mac_(std::make_unique<Mac>()) {}
BlockHasher::~BlockHasher() = default;

BlockHash BlockHasher::root(std::string_view salt) const {
  // A block's message is never as long as this prefix with a salt behind it, unless its bytes are chosen under the key.
  constexpr std::string_view kPurpose = "prefix of a sequence";
  return mac_->hash(mac_->context().get(), kPurpose.data(), kPurpose.size(), salt.data(), salt.size());
}

void BlockHasher::extend(BlockHash root, std::span<const int32_t> tokens, std::vector<BlockHash>& chain) const {
  extend(root, SplitTokens{tokens, {}}, chain);
}

void BlockHasher::extend(BlockHash root, const SplitTokens& tokens, std::vector<BlockHash>& chain) const {
  const auto length = static_cast<size_t>(block_tokens_);
  const size_t blocks = (tokens.first.size() + tokens.second.size()) / length;
  if (chain.size() >= blocks) return;
  const auto context = mac_->context();
  std::vector<int32_t> joined;  // the block that lies in both
  while (chain.size() < blocks) {
    const BlockHash& parent = chain.empty() ? root : chain.back();
    const size_t start = chain.size() * length;
    const int32_t* ids = nullptr;
    if (start + length <= tokens.first.size()) {
      ids = tokens.first.data() + start;
    } else if (start >= tokens.first.size()) {
      ids = tokens.second.data() + (start - tokens.first.size());
    } else {
      const auto head = tokens.first.subspan(start);
      joined.assign(head.begin(), head.end());
      joined.insert(joined.end(), tokens.second.begin(),
                    tokens.second.begin() + static_cast<ptrdiff_t>(length - head.size()));
      ids = joined.data();
    }
    chain.push_back(mac_->hash(context.get(), &parent, sizeof(parent), ids, length * sizeof(int32_t)));
  }
}

}  // namespace gannet
