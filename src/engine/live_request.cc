#include "engine/live_request.h"

#include <algorithm>
#include <utility>

namespace gannet {

LiveRequest::LiveRequest(RequestId number, Request wanted, int64_t most, std::span<const int32_t> never_sampled)
    : id(number),
      request(std::move(wanted)),
      prompt_tokens(static_cast<int64_t>(request.prompt.size())),
      max_tokens(most),
      tokens(std::move(request.prompt)),
      sampler(request.sampling, tokens.prompt(), never_sampled) {}

bool LiveRequest::can_decode() const {
  const auto* decoding = std::get_if<Decoding>(&state);
  if (decoding == nullptr || generated() + pending_samples >= max_tokens) return false;
  return decoding->residence.next < length() + pending_samples;
}

Residence* LiveRequest::residence() {
  if (auto* waiting = std::get_if<WaitingForKv>(&state)) return &waiting->residence;
  if (auto* prefilling = std::get_if<Prefilling>(&state)) return &prefilling->residence;
  if (auto* decoding = std::get_if<Decoding>(&state)) return &decoding->residence;
  return nullptr;
}

std::optional<FinishReason> LiveRequest::append(int32_t token) {
  tokens.push_back(token);
  const auto& stops = request.sampling.stop_ids;
  if (std::find(stops.begin(), stops.end(), token) != stops.end()) return FinishReason::stop;
  if (generated() >= max_tokens) return FinishReason::length;
  return std::nullopt;
}

}  // namespace gannet
