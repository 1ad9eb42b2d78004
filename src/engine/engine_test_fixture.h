#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <future>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "checkpoint/random_checkpoint.h"
#include "checkpoint/shapes.h"
#include "checkpoint/test_directory.h"
#include "engine/engine.h"
#include "engine/loaded_model.h"

// For tests of the engine with a real model: small random checkpoints, requests and their answers.
namespace gannet {

using Ids = std::vector<int32_t>;

// A model without Engram, so small that thousands of steps are quick, yet with every other kind of layer.
inline constexpr const char* kTiny = R"({
  "vocab_size": 64, "hidden_size": 64, "num_hidden_layers": 5, "num_attention_heads": 2, "head_dim": 32,
  "qk_rope_head_dim": 16, "q_lora_rank": 32, "o_lora_rank": 32, "o_groups": 2, "moe_intermediate_size": 32,
  "n_routed_experts": 4, "num_experts_per_tok": 2, "sliding_window": 8, "compress_ratios": [0, 2, 1, 1, 1],
  "kv_source_layer_ids": [1, 2], "index_source_layer_ids": [1, 2, 4], "index_n_heads": 2, "index_head_dim": 32,
  "index_topk": 6, "candidate_source_layer_id": 2, "candidate_topk_blocks": 4, "candidate_block_size": 2})";

inline Result<int64_t> all_ids(int64_t vocab_size) {
  return vocab_size;
}

// Checkpoints, written once for all tests.
struct Checkpoints {
  Checkpoints() {
    EXPECT_TRUE(write_random_checkpoint(
        {.config = parse_shape(kTiny, "tiny", all_ids).value(), .seed = 5, .tokenizer_json = ""}, tiny));
    EXPECT_TRUE(write_random_checkpoint(
        {.config = named_shape("small", all_ids).value(), .seed = 6, .tokenizer_json = ""}, engram));
  }
  TestDirectory root;
  std::filesystem::path tiny = root / "tiny";
  std::filesystem::path engram = root / "engram";
};

inline const Checkpoints& checkpoints() {
  static const Checkpoints written;
  return written;
}

inline constexpr int64_t kContext = 20000;
inline constexpr int64_t kVocab = 64;

inline EngineOptions tiny_options() {
  return {.model = checkpoints().tiny,
          .threads = 1,
          .max_model_len = kContext,
          .max_num_batched_tokens = 16,
          .max_num_seqs = 4};
}

inline std::unique_ptr<Engine> open_engine(EngineOptions options = tiny_options()) {
  return std::move(create_engine(std::move(options)).value());
}

inline Ids prompt_of(int64_t length) {
  Ids ids(length);
  for (int64_t i = 0; i < length; ++i) ids[i] = static_cast<int32_t>((i * i * 7 + i * 3 + 11) % kVocab);
  return ids;
}

inline SamplingParams greedy(int64_t max_tokens) {
  return {.temperature = 0, .max_tokens = max_tokens};
}

// What came of one request. Read it after reason() or after the engine is gone.
class Answer {
 public:
  std::vector<Token> tokens;
  int ends = 0;

  // Waits for the end.
  FinishReason reason() {
    // Only a hang takes that long.
    EXPECT_EQ(ended_.wait_for(std::chrono::minutes(2)), std::future_status::ready);
    return ended_.get();
  }
  Ids ids() const {
    Ids ids;
    for (const Token& token : tokens) ids.push_back(token.id);
    return ids;
  }
  void finish(FinishReason reason) {
    if (++ends == 1) end_.set_value(reason);
  }

 private:
  std::promise<FinishReason> end_;
  std::shared_future<FinishReason> ended_ = end_.get_future().share();
};

inline Request request_for(const std::shared_ptr<Answer>& answer, Ids prompt, SamplingParams sampling) {
  return {.prompt = std::move(prompt),
          .sampling = std::move(sampling),
          .on_token = [answer](const Token& token) { answer->tokens.push_back(token); },
          .on_end = [answer](const Result<FinishReason>& reason) { answer->finish(reason.value()); }};
}

inline std::shared_ptr<Answer> start(Engine& engine, Ids prompt, SamplingParams sampling) {
  auto answer = std::make_shared<Answer>();
  EXPECT_TRUE(engine.submit(request_for(answer, std::move(prompt), std::move(sampling))));
  return answer;
}

inline Ids answer_of(Engine& engine, const Ids& prompt, const SamplingParams& sampling) {
  const auto answer = start(engine, prompt, sampling);
  answer->reason();
  return answer->ids();
}

// The greedy answer by one-row passes of the model itself.
inline Ids stepped_by_hand(const Ids& prompt, int64_t tokens, bool replay) {
  const auto loaded =
      LoadedModel::open(
          {.directory = checkpoints().tiny, .threads = 1, .model = {.max_rows = 1, .max_tokens = 400}, .token_map = {}})
          .value();
  SequenceState state(loaded->config(), loaded->pool());
  BlockTable blocks = loaded->pool().table();
  EXPECT_TRUE(blocks.grow(400));
  state.begin({.blocks = blocks.ids().data()});
  const auto length = static_cast<int64_t>(prompt.size());
  if (replay) state.set_decoder_from(std::max<int64_t>(0, length - loaded->config().sliding_window));
  Ids ids = prompt;
  std::vector<float> logits(kVocab);
  for (int64_t p = 0; p < length + tokens - 1; ++p) {
    const bool last = p + 1 == static_cast<int64_t>(ids.size());
    const Batch batch{.ids = {ids[p]}, .sequences = {{&state, 0, 1}}, .logit_rows = last ? Ids{0} : Ids{}};
    loaded->model().forward(batch, logits.data());
    if (last) ids.push_back(static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin()));
  }
  return {ids.begin() + length, ids.end()};
}

// Holds the engine's thread in the first token of a request until it is opened.
class Gate {
 public:
  ~Gate() { open(); }
  void open() {
    if (!std::exchange(opened_, true)) open_.set_value();
  }
  void wait_until_reached() { reached_.get_future().wait(); }

  Request hold(Request request) {
    request.on_token = [this, on_token = request.on_token](const Token& token) {
      if (!std::exchange(passed_, true)) {
        reached_.set_value();
        opening_.wait();
      }
      on_token(token);
    };
    return request;
  }

 private:
  bool opened_ = false;
  bool passed_ = false;  // the engine's thread only
  std::promise<void> open_;
  std::promise<void> reached_;
  std::shared_future<void> opening_ = open_.get_future().share();
};

}  // namespace gannet
