#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "engine/live_request.h"

namespace gannet {

// One request's rows in a step. What they need lies here: the runner never looks at a request's state.
struct StepPart {
  LiveRequest* request = nullptr;
  int32_t slot = 0;
  const int32_t* blocks = nullptr;  // block ids; stay where they are during the step
  int64_t start = 0;                // position of the first row
  int64_t rows = 0;
  bool samples = false;          // the last row's logits choose a token
  bool prompt_logprobs = false;  // the log-probabilities of the tokens behind the rows are wanted
  int64_t decoder_from = 0;      // decoder layers run on rows from here
  int64_t cached = 0;            // global KV before this position is not written
  // The sequence begins with these rows.
  std::optional<ReplayPlan> begin = {};
  std::optional<int32_t> restore = {};  // windows to begin with (WindowStore)
  std::optional<int32_t> save = {};     // where to keep the windows behind the last row

  int64_t end() const { return start + rows; }
};

struct StepPlan {
  uint64_t number = 0;
  std::vector<StepPart> parts;

  int64_t rows() const {
    int64_t rows = 0;
    for (const StepPart& part : parts) rows += part.rows;
    return rows;
  }
};

// What came of a step, part by part.
struct StepResult {
  struct Part {
    std::optional<Token> token;      // of parts that sample
    std::optional<Error> error;      // in its place: the request cannot go on, others can
    PromptLogprobs prompt_logprobs;  // of the tokens behind the part's rows, for requests that want them
  };
  std::vector<Part> parts;
};

}  // namespace gannet
