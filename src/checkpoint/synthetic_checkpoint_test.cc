#include "checkpoint/synthetic_checkpoint.h"

#include <gtest/gtest.h>

#include "checkpoint/manifest.h"
#include "checkpoint/shapes.h"

namespace gannet {
namespace {

Config small() {
  return named_shape("small", [](int64_t) -> Result<int64_t> { return 400; }).value();
}

TEST(SomeLayers, BeginAtTheLastSourceAndLeaveOutWhatIsNotRun) {
  const Config part = some_layers(small(), 3);  // 6 to 8: a source of entries and candidates, and a second index
  EXPECT_EQ(part.num_hidden_layers, 3);
  EXPECT_EQ(part.compress_ratios, (std::vector<int64_t>{1, 1, 1}));
  EXPECT_EQ(part.kv_source_layer_ids, (std::vector<int64_t>{0}));
  EXPECT_EQ(part.index_source_layer_ids, (std::vector<int64_t>{0, 2}));
  EXPECT_EQ(part.candidate_source_layer_id, 0);
  EXPECT_TRUE(part.engram_layer_ids.empty());
  EXPECT_EQ(part.num_nextn_predict_layers, 0);
  EXPECT_TRUE(parse_config(config_to_json(part), "part"));
}

TEST(SomeLayers, OfTheReleasedModelAreConsistent) {
  for (const int64_t layers : {1, 5, 20}) {
    const Config part = some_layers(released_config(), layers);
    EXPECT_TRUE(parse_config(config_to_json(part), "part")) << layers;
  }
}

TEST(SyntheticCheckpoint, HasEveryTensorAndSharesExperts) {
  ThreadPool threads(2);
  const Config config = some_layers(small(), 2);
  int64_t done = 0;
  int64_t all = 0;
  const auto progress = [&](int64_t now, int64_t of) {
    EXPECT_GT(now, done);
    done = now;
    all = of;
  };
  const Checkpoint checkpoint = synthetic_checkpoint(config, 3, threads, progress);
  EXPECT_EQ(done, synthetic_bytes(config, 3));
  EXPECT_EQ(all, done);
  EXPECT_LT(synthetic_bytes(config, 3), synthetic_bytes(config, 4));
  EXPECT_EQ(synthetic_bytes(config, 8), synthetic_bytes(config, 100));
  for (const auto& spec : manifest(config)) {
    const TensorView& tensor = checkpoint.tensor(spec.name);
    EXPECT_EQ(tensor.dtype, spec.dtype) << spec.name;
    EXPECT_EQ(tensor.shape, spec.shape) << spec.name;
    EXPECT_EQ(static_cast<int64_t>(tensor.bytes.size()), spec.bytes()) << spec.name;
    EXPECT_EQ(reinterpret_cast<uintptr_t>(tensor.bytes.data()) % 64, 0) << spec.name;
  }
  const auto place = [&](int expert) {
    return checkpoint.tensor(fmt::format("layers.1.ffn.experts.{}.w2.weight", expert)).bytes.data();
  };
  EXPECT_NE(place(0), place(1));
  EXPECT_NE(place(1), place(2));
  EXPECT_EQ(place(3), place(0));
  EXPECT_EQ(place(7), place(1));
}

}  // namespace
}  // namespace gannet
