#pragma once

#include <algorithm>
#include <cstdint>

namespace gannet {

// Where a sequence begins to run, given what a cache holds of it (spec: model 5, serving 1).
struct ReplayPlan {
  int64_t first = 0;         // position of the first row
  int64_t cached = 0;        // global KV of tokens before this position is adopted and never written again
  int64_t encoder_from = 0;  // window KV begins here, in the layers up to the seam and behind it
  int64_t decoder_from = 0;
};

struct ReplayRule {
  bool bounded = true;
  int64_t window = 128;        // sliding_window
  int64_t draft_rollback = 0;  // rows kept beyond the window, so that drafts can be taken back
};

// `hit` of the sequence's `length` tokens are cached; hit < length.
//
// Bounded: the window's rows before the hit's end run again, only to rebuild the windows of the encoder layers; a hit
// that is no longer than that saves nothing and is not adopted. Decoder layers run on the last rows only.
// Not bounded: the windows come with the hit (WindowStore), and every layer runs on every row.
inline ReplayPlan plan_replay(const ReplayRule& rule, int64_t hit, int64_t length) {
  if (!rule.bounded) return {.first = hit, .cached = hit};
  if (hit <= rule.window) hit = 0;
  ReplayPlan plan;
  plan.cached = hit;
  plan.first = plan.encoder_from = std::max<int64_t>(0, hit - rule.window);
  plan.decoder_from = std::max(plan.encoder_from, length - rule.window - rule.draft_rollback);
  return plan;
}

// The last pass of a request whose KV is to be handed over: its windows are rebuilt as the receiver would rebuild them,
// so that both continue alike.
inline ReplayPlan plan_handover(const ReplayRule& rule, int64_t length) {
  const int64_t from = std::max<int64_t>(0, length - rule.window);
  return {.first = from, .cached = length, .encoder_from = from, .decoder_from = from};
}

// The receiver's side, when the windows came along: only the last token runs, for its logits.
inline ReplayPlan plan_takeover(const ReplayRule& rule, int64_t hit, int64_t length) {
  const int64_t from = std::max<int64_t>(0, length - rule.window);
  return {.first = std::min(hit, length - 1), .cached = hit, .encoder_from = from, .decoder_from = from};
}

}  // namespace gannet
