#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/device.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/safetensors.h"
#include "model/model.h"

// The forward pass against the frozen answers of an independent evaluation (tests/data/model), and against itself: how
// a prompt is cut into passes must not change a single bit.
namespace gannet {
namespace {

const std::string kData = std::string(GANNET_TEST_DATA) + "/model/";

std::vector<float> floats(const TensorView& tensor) {
  std::vector<float> values(tensor.bytes.size() / sizeof(float));
  std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
  return values;
}

// The checkpoint and its answers, opened once for all tests.
struct Fixture {
  Checkpoint checkpoint = *Checkpoint::open(kData + "small");
  SafetensorsFile vectors = *SafetensorsFile::open(kData + "small.safetensors");
  std::vector<int32_t> ids = *vectors.int32_vector("ids");
  std::vector<int32_t> token_map = *vectors.int32_vector("token_map");

  const Config& config() const { return checkpoint.config(); }
  std::vector<float> answer(const std::string& name) const { return floats(vectors.tensors().at(name)); }
};

const Fixture& fixture() {
  static const Fixture opened;
  return opened;
}

struct Mode {
  Activations activations = Activations::fp32;
  bool quantize = true;
  bool replay = false;
  int64_t chunk = 1000;
  int64_t decode = 0;  // that many of the last ids run one at a time
  int64_t prefix = 0;  // that many of the first ids are a prefix-cache hit
  Simd simd = detect_simd();
  int threads = 2;
};

// Runs ids through a model of its own; collects the logits of every row that the decoder layers run on.
class PassRun {
 public:
  PassRun(const Mode& mode, std::vector<int32_t> ids, LayerObserver* observer = nullptr)
      : mode_(mode), ids_(std::move(ids)), observer_(observer), pool_(mode.threads, false) {
    device_ = {.pool = &pool_, .simd = mode.simd};
    const auto count = static_cast<int64_t>(ids_.size());
    ModelOptions options{
        .activations = mode.activations, .quantize_activations = mode.quantize, .max_rows = count, .max_tokens = count};
    blocks_ = std::make_unique<BlockPool>(block_layout(fixture().config(), 8), count / 8 + 1);
    model_ = *Model::create(fixture().checkpoint, device_, *blocks_, options, fixture().token_map);
    table_ = blocks_->table();
    EXPECT_TRUE(table_.grow(count));
    state_ = std::make_unique<SequenceState>(config(), *blocks_);
    state_->begin({.blocks = table_.ids().data()});
    if (mode.prefix > 0) run_prefix();
    const int64_t prompt = count - mode.decode;
    if (mode.replay) state_->set_decoder_from(std::max<int64_t>(0, prompt - config().sliding_window));
    advance(prompt, mode.chunk);
    advance(count, 1);
  }

  const std::vector<float>& logits() const { return logits_; }

 private:
  static const Config& config() { return fixture().config(); }

  void run_prefix() {
    const int64_t replay_from = std::max<int64_t>(0, mode_.prefix - config().sliding_window);
    state_->set_decoder_from(replay_from);
    advance(mode_.prefix, mode_.chunk);
    logits_.clear();
    state_->begin({.blocks = table_.ids().data(),
                   .first = replay_from,
                   .cached = mode_.prefix,
                   .encoder_from = replay_from,
                   .history = model_->history({ids_.data(), static_cast<size_t>(replay_from)})});
  }

  void advance(int64_t end, int64_t chunk) {
    while (state_->length() < end) {
      const int64_t start = state_->length();
      const int64_t rows = std::min(chunk, end - start);
      Batch batch;
      batch.ids.assign(ids_.begin() + start, ids_.begin() + start + rows);
      batch.sequences.push_back({.state = state_.get(), .first_row = 0, .rows = rows});
      for (int64_t r = 0; r < rows; ++r) {
        if (start + r >= state_->decoder_from()) batch.logit_rows.push_back(static_cast<int32_t>(r));
      }
      const size_t before = logits_.size();
      logits_.resize(before + batch.logit_rows.size() * config().vocab_size);
      model_->forward(batch, logits_.data() + before, observer_);
    }
  }

  Mode mode_;
  std::vector<int32_t> ids_;
  LayerObserver* observer_;
  ThreadPool pool_;
  Device device_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<BlockPool> blocks_;
  BlockTable table_;
  std::unique_ptr<SequenceState> state_;
  std::vector<float> logits_;
};

// Root mean square difference of each row, over the standard deviation of all expected values.
std::vector<double> row_errors(const std::vector<float>& mine, const std::vector<float>& theirs, int64_t width) {
  EXPECT_EQ(mine.size(), theirs.size());
  double sum = 0;
  double square = 0;
  for (const float v : theirs) {
    sum += v;
    square += static_cast<double>(v) * v;
  }
  const auto n = static_cast<double>(theirs.size());
  const double spread = std::sqrt(square / n - sum / n * (sum / n));
  std::vector<double> errors;
  for (size_t row = 0; row < mine.size(); row += width) {
    double difference = 0;
    for (size_t i = row; i < row + width; ++i) difference += std::pow(static_cast<double>(mine[i]) - theirs[i], 2);
    errors.push_back(std::sqrt(difference / static_cast<double>(width)) / spread);
  }
  return errors;
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<int64_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

double share_of_equal_argmax(const std::vector<float>& mine, const std::vector<float>& theirs, int64_t width) {
  int64_t equal = 0;
  for (size_t row = 0; row < mine.size(); row += width) {
    const auto best = [&](const std::vector<float>& v) { return std::max_element(&v[row], &v[row] + width) - &v[row]; };
    equal += best(mine) == best(theirs);
  }
  return static_cast<double>(equal * width) / static_cast<double>(mine.size());
}

// Frozen logits on the same rows: the last ones of `mine`.
void expect_agreement(const std::vector<float>& mine, const std::string& name) {
  const std::vector<float> theirs = fixture().answer(name);
  ASSERT_GE(mine.size(), theirs.size());
  const std::vector<float> rows(mine.end() - static_cast<int64_t>(theirs.size()), mine.end());
  EXPECT_LT(median(row_errors(rows, theirs, fixture().config().vocab_size)), 1e-4);
  EXPECT_GE(share_of_equal_argmax(rows, theirs, fixture().config().vocab_size), 0.9);
}

std::vector<Simd> usable_simd() {
  std::vector<Simd> levels;
  for (const Simd simd : {Simd::none, Simd::avx2, Simd::avx512, Simd::avx512_bf16}) {
    if (simd <= detect_simd()) levels.push_back(simd);
  }
  return levels;
}

TEST(Forward, AgreesWithTheFrozenLogits) {
  for (const Simd simd : usable_simd()) {
    SCOPED_TRACE(name_of(simd));
    expect_agreement(PassRun({.quantize = true, .simd = simd}, fixture().ids).logits(), "logits.q8");
    expect_agreement(PassRun({.quantize = false, .simd = simd}, fixture().ids).logits(), "logits.exact");
  }
}

TEST(Forward, BoundedReplayAgreesWithItsDefinition) {
  expect_agreement(PassRun({.replay = true}, fixture().ids).logits(), "replay.logits");
}

TEST(Forward, PrefixHitAgreesWithItsDefinition) {
  const int64_t hit = fixture().vectors.int32_vector("hit.length")->at(0);
  ASSERT_GT(hit, fixture().config().sliding_window);
  expect_agreement(PassRun({.replay = true, .prefix = hit}, fixture().ids).logits(), "hit.logits");
}

// Keeps the streams behind every layer.
class Streams : public LayerObserver {
 public:
  void layer_in(int64_t, std::span<const int32_t>, const float*, const float*) override {}
  void layer_out(int64_t layer, std::span<const int32_t> rows, const float* streams, const float*) override {
    auto& all = out[layer];
    all.insert(all.end(), streams, streams + static_cast<int64_t>(rows.size()) * width);
  }
  int64_t width = fixture().config().hc_mult * fixture().config().hidden_size;
  std::map<int64_t, std::vector<float>> out;
};

TEST(Forward, EveryLayerAgreesWithTheOraclesTrace) {
  for (const Simd simd : usable_simd()) {
    SCOPED_TRACE(name_of(simd));
    Streams streams;
    const std::vector<int32_t> ids(fixture().ids.begin(), fixture().ids.begin() + 40);
    const PassRun run({.quantize = false, .simd = simd}, ids, &streams);
    for (int64_t n = 0; n < fixture().config().num_hidden_layers; ++n) {
      SCOPED_TRACE("layer " + std::to_string(n));
      const auto errors = row_errors(streams.out[n], fixture().answer("trace." + std::to_string(n)), streams.width);
      EXPECT_LT(median(errors), 1e-5);
      EXPECT_LE(std::count_if(errors.begin(), errors.end(), [](double e) { return e > 1e-3; }), 2);
    }
  }
}

// One row's sums have one order, so passes of any size give the same bits; that also makes decode equal prefill.
TEST(Forward, PassesOfAnySizeGiveTheSameBits) {
  for (const bool replay : {false, true}) {
    for (const Activations activations : {Activations::bf16, Activations::fp32}) {
      const Mode whole{.activations = activations, .replay = replay};
      const auto expected = PassRun(whole, fixture().ids).logits();
      for (const int64_t chunk : {1, 7, 64, 128}) {
        Mode mode = whole;
        mode.chunk = chunk;
        EXPECT_EQ(PassRun(mode, fixture().ids).logits(), expected) << "chunk " << chunk << ", replay " << replay;
      }
    }
  }
}

TEST(Forward, DecodeGivesTheBitsOfPrefill) {
  const auto expected = PassRun({}, fixture().ids).logits();
  EXPECT_EQ(PassRun({.decode = 60}, fixture().ids).logits(), expected);
}

TEST(Forward, ThreadsDoNotChangeTheBits) {
  EXPECT_EQ(PassRun({.threads = 1}, fixture().ids).logits(), PassRun({.threads = 3}, fixture().ids).logits());
}

// Two sequences in one batch, at different positions: each gets the bits it gets alone.
TEST(Forward, SequencesDoNotSeeEachOther) {
  const std::vector<int32_t> first(fixture().ids.begin(), fixture().ids.begin() + 50);
  const std::vector<int32_t> second(fixture().ids.begin() + 70, fixture().ids.begin() + 103);
  ThreadPool pool(2, false);
  const Device device{.pool = &pool, .simd = detect_simd()};
  BlockPool blocks(block_layout(fixture().config(), 8), 16);
  const auto model =
      *Model::create(fixture().checkpoint, device, blocks, {.max_rows = 100, .max_tokens = 100}, fixture().token_map);
  SequenceState a(fixture().config(), blocks);
  SequenceState b(fixture().config(), blocks);
  BlockTable a_blocks = blocks.table();
  BlockTable b_blocks = blocks.table();
  ASSERT_TRUE(a_blocks.grow(50) && b_blocks.grow(33));
  a.begin({.blocks = a_blocks.ids().data()});
  b.begin({.blocks = b_blocks.ids().data()});
  const auto vocab = fixture().config().vocab_size;
  std::vector<float> logits(100 * vocab);

  Batch start{.ids = {second.begin(), second.begin() + 20}, .sequences = {{&b, 0, 20}}, .logit_rows = {}};
  model->forward(start, nullptr);
  Batch both;
  both.ids = second;
  both.ids.erase(both.ids.begin(), both.ids.begin() + 20);
  both.ids.insert(both.ids.end(), first.begin(), first.end());
  both.sequences = {{&b, 0, 13}, {&a, 13, 50}};
  both.logit_rows = {12, 62};
  model->forward(both, logits.data());

  const auto last_row = [&](const std::vector<int32_t>& ids) {
    const auto all = PassRun({.activations = Activations::bf16}, ids).logits();
    return std::vector<float>(all.end() - vocab, all.end());
  };
  EXPECT_EQ(std::vector<float>(logits.begin(), logits.begin() + vocab), last_row(second));
  EXPECT_EQ(std::vector<float>(logits.begin() + vocab, logits.begin() + 2 * vocab), last_row(first));
}

TEST(Forward, TokenMapIsChecked) {
  ThreadPool pool(1);
  const Device device{.pool = &pool, .simd = Simd::none};
  const BlockPool blocks(block_layout(fixture().config(), 8), 1);
  auto map = fixture().token_map;
  map.pop_back();
  const auto shorter = Model::create(fixture().checkpoint, device, blocks, {}, map);
  ASSERT_FALSE(shorter);
  EXPECT_NE(shorter.error().message.find("511"), std::string::npos) << shorter.error().message;
  map.push_back(100000);
  EXPECT_FALSE(Model::create(fixture().checkpoint, device, blocks, {}, map));
}

}  // namespace
}  // namespace gannet
