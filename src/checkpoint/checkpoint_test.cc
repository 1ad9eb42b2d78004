#include "checkpoint/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <functional>
#include <nlohmann/json.hpp>

#include "checkpoint/manifest.h"
#include "checkpoint/random_checkpoint.h"
#include "checkpoint/shapes.h"
#include "checkpoint/test_directory.h"

namespace gannet {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

constexpr const char* kIndex = "model.safetensors.index.json";
constexpr const char* kFirst = "model-00001-of-00002.safetensors";
constexpr const char* kSecond = "model-00002-of-00002.safetensors";
// An FP8 linear and a norm of the first shard.
constexpr const char* kWeight = "layers.0.attn.wq_a.weight";
constexpr const char* kNorm = "layers.0.attn.q_norm.weight";

constexpr const char* kTiny = R"({
  "vocab_size": 8, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "head_dim": 32,
  "qk_rope_head_dim": 16, "q_lora_rank": 32, "o_lora_rank": 16, "o_groups": 2, "moe_intermediate_size": 32,
  "n_routed_experts": 2, "num_experts_per_tok": 1, "sliding_window": 4, "compress_ratios": [0, 1],
  "kv_source_layer_ids": [1], "index_source_layer_ids": [1], "index_n_heads": 1, "index_head_dim": 32,
  "index_topk": 4})";

Config tiny_config() {
  return parse_shape(kTiny, "tiny", [](int64_t) -> Result<int64_t> { return 1; }).value();
}

class CheckpointTest : public testing::Test {
 protected:
  void SetUp() override {
    path_ = root_ / "tiny";
    ASSERT_TRUE(write_random_checkpoint({.config = tiny_config(), .seed = 3, .tokenizer_json = ""}, path_));
  }

  // Rewrites a shard with other tensors.
  void edit(const char* shard, const std::function<void(std::vector<NamedTensor>&)>& change) const {
    const auto file = SafetensorsFile::open(path_ / shard).value();
    std::vector<NamedTensor> tensors;
    for (const auto& [name, view] : file.tensors()) tensors.push_back({name, view.dtype, view.shape, view.bytes});
    change(tensors);
    ASSERT_TRUE(write_safetensors(path_ / shard, tensors));
  }

  // The one of that name.
  static NamedTensor& find(std::vector<NamedTensor>& tensors, std::string_view name) {
    return *std::find_if(tensors.begin(), tensors.end(), [&](const NamedTensor& t) { return t.name == name; });
  }

  void edit_json(const char* name, const std::function<void(json&)>& change) const {
    auto file = json::parse(text_of(path_ / name));
    change(file);
    write_text(path_ / name, file.dump());
  }

  std::string message() const {
    const auto checkpoint = Checkpoint::open(path_);
    if (checkpoint) return "no error";
    EXPECT_EQ(checkpoint.error().kind, ErrorKind::invalid_input);
    return checkpoint.error().message;
  }

  // Exactly one fault is reported, and it says this.
  void expect_fault(const std::string& text) const {
    EXPECT_EQ(message(), fmt::format("{}: 1 fault in the checkpoint:\n  {}", path_.string(), text));
  }

  TestDirectory root_;
  fs::path path_;
};

TEST_F(CheckpointTest, Opens) {
  const auto checkpoint = Checkpoint::open(path_);
  ASSERT_TRUE(checkpoint) << checkpoint.error().message;
  EXPECT_EQ(checkpoint->config(), tiny_config());
  EXPECT_EQ(checkpoint->directory(), path_);
  EXPECT_EQ(checkpoint->tensors().size(), manifest(tiny_config()).size());
  EXPECT_EQ(checkpoint->tensor(kWeight).shape, (std::vector<int64_t>{32, 32}));
}

TEST_F(CheckpointTest, OneFileWithoutIndex) {
  const auto checkpoint = Checkpoint::open(path_).value();
  const auto single = root_ / "single";
  fs::create_directory(single);
  fs::copy(path_ / "config.json", single / "config.json");
  std::vector<NamedTensor> tensors;
  for (const auto& [name, view] : checkpoint.tensors()) tensors.push_back({name, view.dtype, view.shape, view.bytes});
  ASSERT_TRUE(write_safetensors(single / "model.safetensors", tensors));
  const auto opened = Checkpoint::open(single);
  ASSERT_TRUE(opened) << opened.error().message;
  EXPECT_EQ(opened->tensors().size(), tensors.size());
}

TEST_F(CheckpointTest, WrongType) {
  edit(kFirst, [](auto& tensors) { find(tensors, kWeight).dtype = DType::i8; });
  expect_fault("layers.0.attn.wq_a.weight: is I8 [32, 32]; it must be F8_E4M3 [32, 32]");
}

TEST_F(CheckpointTest, WrongShape) {
  edit(kFirst, [](auto& tensors) { find(tensors, kWeight).shape = {16, 64}; });
  expect_fault("layers.0.attn.wq_a.weight: is F8_E4M3 [16, 64]; it must be F8_E4M3 [32, 32]");
}

TEST_F(CheckpointTest, ForeignType) {
  auto text = text_of(path_ / kFirst);
  const auto at = text.find("\"dtype\":\"F8_E4M3\"", text.find(kWeight));
  text.replace(at, 17, "\"dtype\":\"F8_E5M2\"");
  write_text(path_ / kFirst, text);
  expect_fault("layers.0.attn.wq_a.weight: is F8_E5M2; it must be F8_E4M3 [32, 32]");
}

TEST_F(CheckpointTest, MissingTensor) {
  edit(kFirst, [](auto& tensors) { std::erase_if(tensors, [](const auto& t) { return t.name == kNorm; }); });
  expect_fault(fmt::format("{}: {} says it is in {}, but it is not there", kNorm, kIndex, kFirst));
  edit_json(kIndex, [](json& index) { index["weight_map"].erase(kNorm); });
  expect_fault(fmt::format("{}: is missing; it must be BF16 [32]", kNorm));
}

TEST_F(CheckpointTest, ExtraTensor) {
  const float one = 1;
  edit(kSecond, [&](auto& tensors) { tensors.push_back(named_tensor("vision.norm.weight", {1}, std::span(&one, 1))); });
  edit_json(kIndex, [](json& index) { index["weight_map"]["vision.norm.weight"] = kSecond; });
  expect_fault(fmt::format("vision.norm.weight: is in {}, but config.json asks for no such tensor", kSecond));
}

TEST_F(CheckpointTest, TensorThatTheIndexDoesNotList) {
  edit_json(kIndex, [](json& index) { index["weight_map"].erase(kNorm); });
  expect_fault(fmt::format("{}: is in {}, but {} does not list it", kNorm, kFirst, kIndex));
}

TEST_F(CheckpointTest, IndexNamesTheWrongFile) {
  edit_json(kIndex, [](json& index) { index["weight_map"][kNorm] = kSecond; });
  expect_fault(fmt::format("{}: is in {}, but {} says {}", kNorm, kFirst, kIndex, kSecond));
}

TEST_F(CheckpointTest, TensorInTwoFiles) {
  std::vector<std::byte> bytes(64);
  edit(kSecond, [&](auto& tensors) { tensors.push_back({kNorm, DType::bf16, {32}, bytes}); });
  expect_fault(fmt::format("{}: is in {} and in {}; it must be in one file", kNorm, kFirst, kSecond));
}

TEST_F(CheckpointTest, IndexNamesATensorTwice) {
  auto text = text_of(path_ / kIndex);
  const auto map = std::string("\"weight_map\": {");
  text.insert(text.find(map) + map.size(), fmt::format("\"{}\": \"{}\",", kNorm, kSecond));
  write_text(path_ / kIndex, text);
  EXPECT_THAT(message(), HasSubstr(fmt::format("{}: has the key '{}' twice", kIndex, kNorm)));
}

TEST_F(CheckpointTest, IndexNamesFoldersOrNonsense) {
  edit_json(kIndex, [](json& index) { index["weight_map"][kNorm] = "../x.safetensors"; });
  EXPECT_THAT(message(), HasSubstr(R"(is "../x.safetensors"; it must be a file name without folders)"));
  edit_json(kIndex, [](json& index) { index["weight_map"][kNorm] = 5; });
  EXPECT_THAT(message(), HasSubstr("is 5; it must be a file name without folders"));
}

TEST_F(CheckpointTest, IndexIsBroken) {
  write_text(path_ / kIndex, "{}");
  EXPECT_THAT(message(), HasSubstr("weight_map is missing"));
  write_text(path_ / kIndex, R"({"weight_map": []})");
  EXPECT_THAT(message(), HasSubstr("weight_map is []"));
  write_text(path_ / kIndex, "");
  EXPECT_THAT(message(), HasSubstr("is not valid JSON"));
  write_text(path_ / kIndex, R"({"weight_map": {}})");
  EXPECT_THAT(message(), HasSubstr(fmt::format("{} faults in the checkpoint", manifest(tiny_config()).size())));
}

TEST_F(CheckpointTest, MissingShard) {
  fs::remove(path_ / kSecond);
  expect_fault((path_ / kSecond).string() + ": cannot be opened: No such file or directory");
}

TEST_F(CheckpointTest, TruncatedShard) {
  const auto size = fs::file_size(path_ / kSecond);
  fs::resize_file(path_ / kSecond, size - 1);
  EXPECT_THAT(message(), HasSubstr("1 fault in the checkpoint"));
  EXPECT_THAT(message(), HasSubstr("(truncated?)"));
  for (const size_t shorter : {size_t{0}, size_t{4}, size_t{100}, size / 2}) {
    fs::resize_file(path_ / kSecond, shorter);
    EXPECT_THAT(message(), HasSubstr("1 fault in the checkpoint")) << shorter;
    EXPECT_THAT(message(), HasSubstr(kSecond)) << shorter;
  }
}

TEST_F(CheckpointTest, ShardIsAFolder) {
  fs::remove(path_ / kSecond);
  fs::create_directory(path_ / kSecond);
  expect_fault((path_ / kSecond).string() + ": is not a regular file");
}

TEST_F(CheckpointTest, UnreadableShard) {
  if (::geteuid() == 0) GTEST_SKIP() << "root reads everything";
  fs::permissions(path_ / kSecond, fs::perms::none);
  expect_fault((path_ / kSecond).string() + ": cannot be opened: Permission denied");
}

TEST_F(CheckpointTest, AllFaultsAtOnce) {
  edit(kFirst, [](auto& tensors) {
    find(tensors, kWeight).dtype = DType::i8;
    find(tensors, kNorm).dtype = DType::f32;
    find(tensors, kNorm).shape = {16};
  });
  fs::remove(path_ / kSecond);
  EXPECT_THAT(message(), StartsWith(path_.string() + ": 3 faults in the checkpoint:\n  "));
  EXPECT_THAT(message(), HasSubstr(kWeight));
  EXPECT_THAT(message(), HasSubstr(kNorm));
  EXPECT_THAT(message(), HasSubstr(kSecond));
}

TEST_F(CheckpointTest, ConfigAsksForMore) {
  auto config = tiny_config();
  config.n_routed_experts = 3;
  write_text(path_ / "config.json", config_to_json(config));
  // Three gates of another shape and twelve tensors of the third expert in each of the two layers.
  EXPECT_THAT(message(), HasSubstr("18 faults in the checkpoint"));
  EXPECT_THAT(message(), HasSubstr("layers.1.ffn.experts.2.w3.scale: is missing; it must be F8_E8M0 [32, 1]"));
  EXPECT_THAT(message(), HasSubstr("layers.0.ffn.gate.bias: is F32 [2]; it must be F32 [3]"));
}

TEST_F(CheckpointTest, ConfigIsMissingOrBroken) {
  write_text(path_ / "config.json", "{");
  EXPECT_THAT(message(), HasSubstr("config.json: is not valid JSON"));
  fs::remove(path_ / "config.json");
  EXPECT_THAT(message(), HasSubstr("config.json: cannot be opened"));
}

TEST_F(CheckpointTest, NotACheckpoint) {
  fs::remove(path_ / kIndex);
  EXPECT_THAT(message(), HasSubstr("has neither model.safetensors.index.json nor model.safetensors"));
  EXPECT_THAT(Checkpoint::open(root_ / "absent").error().message, HasSubstr("does not exist"));
  EXPECT_THAT(Checkpoint::open(path_ / "config.json").error().message, HasSubstr("is not a directory"));
}

TEST_F(CheckpointTest, FindModel) {
  EXPECT_EQ(find_model(path_.string()).value(), path_);
  EXPECT_THAT(find_model("no-such-model").error().message, HasSubstr("MODEL is 'no-such-model'; it must be"));
  EXPECT_THAT(find_model((path_ / "config.json").string()).error().message, HasSubstr("(this is not a directory)"));
  EXPECT_FALSE(find_model(""));

  const auto old = fs::current_path();
  fs::create_directory(root_ / "models");
  fs::create_directory(root_ / "models/mine");
  fs::current_path(root_.path());
  EXPECT_EQ(find_model("mine").value(), fs::path("./models/mine"));
  EXPECT_FALSE(find_model("../models/mine/../mine2"));
  fs::current_path(old);
}

}  // namespace
}  // namespace gannet
