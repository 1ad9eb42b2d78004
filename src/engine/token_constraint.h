#pragma once

#include <cstdint>
#include <span>

namespace gannet {

// Which tokens may come next in one answer: those that keep it inside a grammar, for example. An object belongs to one
// request, and one thread at a time calls it; a mask may be filled beside the forward pass that makes its logits.
// An exception ends that request.
class TokenConstraint {
 public:
  virtual ~TokenConstraint() = default;

  // Whether the next token is constrained at all: a grammar for the answer is not while the model still reasons. Quick.
  virtual bool active() const = 0;
  // Sets bit i % 32 of mask[i / 32] if id i may come next, and clears it if not; `mask` holds a bit for each id of the
  // vocabulary. At least one id may always come next; a complete answer leaves the stop ids. May take milliseconds.
  virtual void fill_mask(std::span<uint32_t> mask) = 0;
  // The token that was chosen, active or not.
  virtual void accept(int32_t id) = 0;
};

}  // namespace gannet
