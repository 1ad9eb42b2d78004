#include "checkpoint/random_checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cmath>
#include <csignal>
#include <map>
#include <set>

#include "base/number_formats.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/manifest.h"
#include "checkpoint/random_tensor.h"
#include "checkpoint/shapes.h"
#include "checkpoint/test_directory.h"

namespace gannet {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

Config shape(std::string_view name) {
  return named_shape(name, [](int64_t) -> Result<int64_t> { return 400; }).value();
}

std::vector<uint8_t> bytes_of_tensor(const TensorSpec& spec, uint64_t seed) {
  std::vector<uint8_t> bytes(static_cast<size_t>(spec.bytes()));
  RandomTensor(spec, seed).fill(0, std::as_writable_bytes(std::span(bytes)));
  return bytes;
}

class Shapes : public testing::TestWithParam<std::string_view> {};

TEST_P(Shapes, WriteAndOpen) {
  const TestDirectory root;
  const RandomCheckpoint checkpoint{.config = shape(GetParam()), .seed = 7, .tokenizer_json = "{}"};
  const auto status = write_random_checkpoint(checkpoint, root / "new/deep");
  ASSERT_TRUE(status) << status.error().message;
  const auto opened = Checkpoint::open(root / "new/deep");
  ASSERT_TRUE(opened) << opened.error().message;
  EXPECT_EQ(opened->config(), checkpoint.config);
  EXPECT_EQ(text_of(root / "new/deep/tokenizer.json"), "{}");
}

INSTANTIATE_TEST_SUITE_P(All, Shapes, testing::Values("small", "heads", "long", "odd"),
                         [](const auto& shape_info) { return std::string(shape_info.param); });

TEST(RandomCheckpoint, SameSeedSameBytes) {
  const TestDirectory root;
  for (const auto& [name, seed] : std::map<std::string, uint64_t>{{"a", 1}, {"b", 1}, {"c", 2}}) {
    ASSERT_TRUE(write_random_checkpoint({.config = shape("long"), .seed = seed, .tokenizer_json = ""}, root / name));
  }
  const auto shard = [&](const char* name) {
    return text_of(root / (std::string(name) + "/model-00001-of-00002.safetensors"));
  };
  EXPECT_EQ(shard("a"), shard("b"));
  EXPECT_NE(shard("a"), shard("c"));
}

// Frozen: the bytes must not depend on the machine or the compiler.
TEST(RandomCheckpoint, FrozenBytes) {
  const auto digest = [](const TensorSpec& spec) {
    uint64_t sum = 0;
    for (const uint8_t byte : bytes_of_tensor(spec, 7)) sum = sum * 1099511628211U + byte;
    return sum;
  };
  std::map<DType, TensorSpec> first;
  for (const auto& spec : manifest(shape("small"))) first.emplace(spec.dtype, spec);
  const std::map<DType, uint64_t> expected = {{DType::bf16, 3010342230108963217U},
                                              {DType::f32, 3224421575965224909U},
                                              {DType::f8_e4m3, 11763102192400207308U},
                                              {DType::f8_e8m0, 193591613080405782U},
                                              {DType::i8, 14675062839214604170U}};
  for (const auto& [dtype, digest_expected] : expected) {
    EXPECT_EQ(digest(first.at(dtype)), digest_expected) << first.at(dtype).name;
  }
}

TEST(RandomCheckpoint, SomeWeightsAndScalesAreApart) {
  const TestDirectory root;
  ASSERT_TRUE(write_random_checkpoint({.config = shape("small"), .seed = 1, .tokenizer_json = ""}, root / "m"));
  const auto first = SafetensorsFile::open(root / "m/model-00001-of-00002.safetensors").value();
  const auto second = SafetensorsFile::open(root / "m/model-00002-of-00002.safetensors").value();
  int apart = 0;
  for (const auto& [name, view] : first.tensors()) {
    if (!name.ends_with(".weight")) continue;
    apart += second.tensors().contains(name.substr(0, name.size() - 7) + ".scale");
  }
  EXPECT_GT(apart, 0);
  EXPECT_GT(second.tensors().size(), 100U);
}

TEST(RandomCheckpoint, RefusesPlacesThatAreTaken) {
  const TestDirectory root;
  const RandomCheckpoint checkpoint{.config = shape("long"), .seed = 1, .tokenizer_json = ""};
  write_text(root / "file", "x");
  auto status = write_random_checkpoint(checkpoint, root.path());
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().kind, ErrorKind::invalid_input);
  EXPECT_THAT(status.error().message, HasSubstr("is not empty; it must be an empty directory or not exist"));
  status = write_random_checkpoint(checkpoint, root / "file");
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().kind, ErrorKind::invalid_input);
  EXPECT_THAT(status.error().message, HasSubstr("is not a directory"));
  EXPECT_EQ(text_of(root / "file"), "x");
  for (const auto& path : {root / "file/below", fs::path("/proc/gannet-test")}) {
    status = write_random_checkpoint(checkpoint, path);
    ASSERT_FALSE(status) << path;
    EXPECT_EQ(status.error().kind, ErrorKind::failed) << path;
    EXPECT_THAT(status.error().message, HasSubstr(path.string()));
  }
}

// A full disk, played by a limit on the size of files.
TEST(RandomCheckpoint, LeavesNothingBehindWhenTheDiskIsFull) {
  const TestDirectory root;
  rlimit old{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &old), 0);
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{200'000, old.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const auto status = write_random_checkpoint({.config = shape("long"), .seed = 1, .tokenizer_json = ""}, root / "m");
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &old), 0);
  std::signal(SIGXFSZ, old_handler);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().kind, ErrorKind::failed);
  EXPECT_THAT(status.error().message, HasSubstr("cannot be written"));
  EXPECT_TRUE(fs::is_empty(root.path()));
}

// Streaming in pieces of any size gives the same tensor.
TEST(RandomTensor, AnyPartOnItsOwn) {
  const std::vector<TensorSpec> specs = {
      {"layers.0.attn.wq_a.weight", DType::f8_e4m3, {70, 100}, TensorGroup::attention},
      {"layers.0.attn.wq_a.scale", DType::f8_e8m0, {3, 4}, TensorGroup::attention},
      {"layers.0.ffn.experts.1.w2.weight", DType::i8, {50, 48}, TensorGroup::routed_experts},
      {"layers.0.engram.embed.weight", DType::f8_e4m3, {70, 64}, TensorGroup::engram_tables},
      {"layers.0.ffn.gate.weight", DType::bf16, {70, 64}, TensorGroup::norms_mixes_routers},
      {"layers.0.attn.attn_sink", DType::f32, {333}, TensorGroup::attention}};
  for (const auto& spec : specs) {
    const auto whole = bytes_of_tensor(spec, 5);
    const RandomTensor tensor(spec, 5);
    for (size_t begin = 0; begin < whole.size(); begin += 52) {
      std::vector<uint8_t> part(std::min<size_t>(52, whole.size() - begin));
      tensor.fill(static_cast<int64_t>(begin), std::as_writable_bytes(std::span(part)));
      EXPECT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + static_cast<int64_t>(begin))) << spec.name;
    }
  }
}

// Values of an FP8 linear exercise its format.
TEST(RandomTensor, Fp8CoversTheFormat) {
  const int64_t size = 1024;
  const TensorSpec weight{"layers.0.attn.wq_a.weight", DType::f8_e4m3, {size, size}, TensorGroup::attention};
  const TensorSpec scale{"layers.0.attn.wq_a.scale", DType::f8_e8m0, {size / 32, size / 32}, TensorGroup::attention};
  const auto codes = bytes_of_tensor(weight, 1);
  const auto scales = bytes_of_tensor(scale, 1);
  EXPECT_GE(std::set<uint8_t>(scales.begin(), scales.end()).size(), 5U);
  int saturated = 0;
  int negative_zero = 0;
  double sum_of_squares = 0;
  for (size_t i = 0; i < codes.size(); ++i) {
    ASSERT_NE(codes[i] & 0x7f, 0x7f) << "NaN";
    saturated += (codes[i] & 0x7f) == 0x7e;
    negative_zero += codes[i] == 0x80;
    const float s = e8m0_to_float(scales[i / size / 32 * (size / 32) + i % size / 32]);
    sum_of_squares += std::pow(e4m3_to_float(codes[i]) * s, 2);
  }
  EXPECT_GT(saturated, 1000);
  EXPECT_GT(negative_zero, 1000);                                             // zero blocks have both signs
  const double gain = std::sqrt(sum_of_squares / static_cast<double>(size));  // of a sum over unit inputs
  EXPECT_GT(gain, 0.8);
  EXPECT_LT(gain, 1.4);
}

TEST(RandomTensor, Fp4CoversTheFormat) {
  const TensorSpec weight{"layers.0.ffn.experts.0.w1.weight", DType::i8, {512, 256}, TensorGroup::routed_experts};
  const TensorSpec scale{"layers.0.ffn.experts.0.w1.scale", DType::f8_e8m0, {512, 16}, TensorGroup::routed_experts};
  std::map<int, int> count;
  for (const uint8_t byte : bytes_of_tensor(weight, 1)) {
    ++count[byte & 15];
    ++count[byte >> 4];
  }
  for (int code = 0; code < 16; ++code) EXPECT_GT(count[code], 1000) << code;
  const auto scales = bytes_of_tensor(scale, 1);
  EXPECT_GE(std::set<uint8_t>(scales.begin(), scales.end()).size(), 5U);
}

TEST(ShapeConfig, UnknownName) {
  const auto config = named_shape("huge", [](int64_t) -> Result<int64_t> { return 1; });
  EXPECT_THAT(config.error().message, HasSubstr("shape is 'huge'; it must be one of small, heads, long, odd, wide"));
}

TEST(ShapeConfig, FillsInWhatFollows) {
  auto text = config_to_json(shape("small"));
  const auto drop_line = [&](const char* key) {
    const auto begin = text.rfind('\n', text.find(key)) + 1;
    auto end = text.find('\n', begin);
    if (text[end - 1] == '[') end = text.find("],\n", end) + 2;
    text.erase(begin, end + 1 - begin);
  };
  drop_line("engram_num_embeddings");
  drop_line("engram_compressed_vocab_size");
  const auto parsed = parse_shape(text, "x", [](int64_t vocab) -> Result<int64_t> { return vocab - 112; });
  ASSERT_TRUE(parsed) << parsed.error().message;
  EXPECT_EQ(*parsed, shape("small"));
}

TEST(ShapeConfig, CompressedSizeMustBeTheTokenizers) {
  const auto text = config_to_json(shape("small"));
  const auto parsed = parse_shape(text, "x", [](int64_t) -> Result<int64_t> { return 419; });
  EXPECT_THAT(parsed.error().message, HasSubstr("engram_compressed_vocab_size is 400; it must be 419"));
  const auto without = parse_shape(text, "x", [](int64_t) -> Result<int64_t> { return invalid_input("no tokenizer"); });
  EXPECT_EQ(without.error().message, "no tokenizer");
}

TEST(ShapeConfig, BadShapes) {
  const auto message = [](std::string_view text) {
    return parse_shape(text, "x.json", [](int64_t) -> Result<int64_t> { return 1; }).error().message;
  };
  EXPECT_THAT(message("["), HasSubstr("x.json: is not valid JSON"));
  EXPECT_THAT(message("3"), HasSubstr("x.json: is 3; it must be a JSON object"));
  EXPECT_THAT(message("{}"), HasSubstr("text_config.hidden_size is missing"));
  EXPECT_THAT(message(R"({"text_config": 3})"), HasSubstr("text_config is 3; it must be an object"));
  EXPECT_THAT(message(R"({"engram_layer_ids": [0], "vocab_size": "many"})"), HasSubstr("vocab_size is \"many\""));
}

}  // namespace
}  // namespace gannet
