#include "text/test_data.h"

#include <gtest/gtest.h>
#include <openssl/sha.h>
#include <zstd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

namespace gannet::text::test_data {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void stop(std::string_view name, std::string_view why) {
  fmt::print(stderr, "test data {}: {}\n", name, why);
  std::abort();
}

std::string read_bytes(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) stop(path.string(), "cannot be read");
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string decompress(std::string_view compressed, std::string_view name) {
  const auto size = ZSTD_getFrameContentSize(compressed.data(), compressed.size());
  if (size == ZSTD_CONTENTSIZE_ERROR || size == ZSTD_CONTENTSIZE_UNKNOWN) stop(name, "not a sized zstd frame");
  std::string content(size, '\0');
  const size_t written = ZSTD_decompress(content.data(), content.size(), compressed.data(), compressed.size());
  if (ZSTD_isError(written) || written != size) stop(name, "zstd frame is damaged");
  return content;
}

Tokenizer load(std::string_view name) {
  auto tokenizer = Tokenizer::parse(read(name), name);
  if (!tokenizer) stop(name, tokenizer.error().message);
  return *std::move(tokenizer);
}

}  // namespace

std::string read(std::string_view name) {
  const fs::path path = fs::path(GANNET_TEST_DATA) / "text" / name;
  if (fs::exists(path)) return read_bytes(path);
  return decompress(read_bytes(path.string() + ".zst"), name);
}

std::vector<std::string> read_lines(std::string_view name) {
  const std::string content = read(name);
  std::vector<std::string> lines;
  for (size_t begin = 0; begin < content.size();) {
    const size_t end = std::min(content.find('\n', begin), content.size());
    if (end > begin) lines.push_back(content.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

const Tokenizer& released_tokenizer() {
  static const Tokenizer tokenizer = load("tokenizer-v41.json");
  return tokenizer;
}

const Tokenizer& small_tokenizer() {
  static const Tokenizer tokenizer = load("tokenizer-test.json");
  return tokenizer;
}

std::string sha256(std::span<const int32_t> ids) {
  std::string bytes;
  for (const int32_t id : ids) {
    for (int shift = 0; shift < 32; shift += 8) bytes.push_back(static_cast<char>(static_cast<uint32_t>(id) >> shift));
  }
  std::array<unsigned char, SHA256_DIGEST_LENGTH> digest{};
  SHA256(reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(), digest.data());
  std::string hex;
  for (const unsigned char byte : digest) hex += fmt::format("{:02x}", byte);
  return hex;
}

std::string short_hash(std::span<const int32_t> ids) {
  return sha256(ids).substr(0, 16);
}

TEST(TestData, HashesLittleEndianIds) {
  EXPECT_EQ(sha256({}), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  const std::vector<int32_t> abcd = {0x64636261};
  EXPECT_EQ(short_hash(abcd), "88d4266fd4e6338d");  // of "abcd"
}

}  // namespace gannet::text::test_data
