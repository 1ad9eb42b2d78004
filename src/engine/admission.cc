#include <algorithm>
#include <utility>

#include "base/error.h"
#include "engine/scheduler.h"

// The part of the scheduler that lets requests in and shares a step's rows among prompts.
namespace gannet {

void Scheduler::plan_prefills(StepPlan& step) {
  std::vector<Grant> grants;
  for (LiveRequest* request : running_) {
    const auto* prefilling = std::get_if<Prefilling>(&request->state);
    if (prefilling == nullptr) continue;
    // Many others may get rows, and keep windows, before those that it begins with have been read.
    const Residence& residence = prefilling->residence;
    if (!residence.begun && residence.windows) windows_->touch(*residence.windows);
    grants.push_back(grant_for(*request));
  }
  admit(grants);
  distribute(grants);
  for (const Grant& grant : grants) {
    const int64_t rows = grant.request->wants_prompt_logprobs() ? std::min(grant.rows, logprob_rows_) : grant.rows;
    if (rows > 0 && !add_chunk(step, *grant.request, rows)) starved_ = true;
  }
}

Scheduler::Grant Scheduler::grant_for(LiveRequest& request) const {
  const int64_t remaining = request.length() - request.residence()->next;
  const int64_t most = request.wants_prompt_logprobs() ? options_.max_prompt_logprob_rows : remaining;
  return {.request = &request,
          .remaining = std::min(remaining, most),
          .rows = 0,
          .is_long = remaining > options_.long_prefill_token_threshold};
}

// Half of the rows are kept from long prompts while shorter ones want them, so that neither kind waits for the other to
// be through. Several long prompts take turns; short ones are served in order, so that the first is through soonest.
void Scheduler::distribute(std::vector<Grant>& grants) const {
  std::vector<Grant*> shorts;
  std::vector<Grant*> longs;
  for (Grant& grant : grants) (grant.is_long ? longs : shorts).push_back(&grant);
  std::stable_sort(longs.begin(), longs.end(),
                   [](const Grant* a, const Grant* b) { return a->request->planned_in < b->request->planned_in; });
  int64_t left = budget_;
  const auto give = [&left](const std::vector<Grant*>& to, int64_t most_each, int64_t keep) {
    for (Grant* grant : to) {
      const int64_t rows = std::min({grant->remaining - grant->rows, most_each, left - keep});
      if (rows <= 0) continue;
      grant->rows += rows;
      left -= rows;
    }
  };
  give(shorts, left, longs.empty() ? 0 : (left + 1) / 2);
  give(longs, options_.long_prefill_token_threshold, 0);
  give(shorts, left, 0);
  give(longs, left, 0);
}

// In order of service, until short prompts fill the step or somebody finds no room: nobody overtakes a request that
// waits for it. Long prompts do not count, since they take turns with whoever else is there.
void Scheduler::admit(std::vector<Grant>& grants) {
  int64_t claimed = 0;
  const auto claim = [&](const Grant& grant) { claimed += grant.is_long ? 0 : grant.remaining; };
  for (const Grant& grant : grants) claim(grant);
  counts_.deferred = 0;
  const std::vector<LiveRequest*> candidates(waiting_.begin(), waiting_.end());
  for (LiveRequest* request : candidates) {
    if (claimed >= budget_) return;
    const Admission admission = try_admit(*request);
    if (admission == Admission::no_room) return;
    if (admission == Admission::deferred) {
      ++counts_.deferred;
    } else {
      grants.push_back(grant_for(*request));
      claim(grants.back());
    }
  }
}

Scheduler::Admission Scheduler::try_admit(LiveRequest& request) {
  if (auto* waiting = std::get_if<WaitingForKv>(&request.state)) {
    if (!waiting->arrived) return Admission::deferred;
    enter_prefill(request, std::move(waiting->residence));
    return Admission::admitted;
  }
  if (slots_.free() == 0 || lacks_blocks(request)) return Admission::no_room;
  if (is_behind(request)) return Admission::deferred;
  const Hit hit = find_hit(request);
  if (find_forerunner(request, hit.known)) return Admission::deferred;
  if (!has_room(request, hit)) return Admission::no_room;
  if (source_ != nullptr && !std::exchange(request.source_asked, true) && ask_source(request, hit)) {
    return Admission::deferred;
  }
  enter_prefill(request, make_residence(request, hit));
  return Admission::admitted;
}

// As when it was last tried: its blocks are not there, and no more of them are cached.
bool Scheduler::lacks_blocks(const LiveRequest& request) const {
  const Obstacle& obstacle = request.obstacle;
  if (pool_.free_blocks() >= obstacle.free_blocks) return false;
  if (obstacle.known_blocks >= request.hashes.size()) return true;
  return pool_.match({&request.hashes[obstacle.known_blocks], 1}).blocks == 0;
}

// Whether the request that it waited for has not computed all that they share.
bool Scheduler::is_behind(LiveRequest& request) {
  Obstacle& obstacle = request.obstacle;
  const LiveRequest* other = obstacle.forerunner == 0 ? nullptr : find(obstacle.forerunner);
  const auto* prefilling = other == nullptr ? nullptr : std::get_if<Prefilling>(&other->state);
  if (prefilling != nullptr && prefilling->residence.published < obstacle.forerunner_blocks) return true;
  obstacle.forerunner = 0;
  return false;
}

Scheduler::Hit Scheduler::find_hit(LiveRequest& request) {
  Hit hit;
  ++counts_.lookups;
  if (!options_.prefix_caching || request.wants_prompt_logprobs()) return hit;
  hasher_.extend(request.root, request.tokens, request.hashes);
  const int64_t block = pool_.layout().tokens;
  // The last token always runs, for its logits.
  const int64_t usable = std::min<int64_t>((request.length() - 1) / block, static_cast<int64_t>(request.hashes.size()));
  const std::span<const BlockHash> hashes(request.hashes.data(), usable);
  hit.known = pool_.match(hashes).blocks;
  int64_t blocks = hit.known;
  if (windows_ != nullptr) {
    while (blocks > 0 && !(hit.windows = windows_->find(hashes[blocks - 1]))) --blocks;
  }
  hit.tokens = plan_replay(options_.replay, blocks * block, request.length()).cached;
  hit.free_blocks = pool_.match(hashes.first(hit.tokens / block)).free;
  return hit;
}

// Whether a running prompt is about to complete the block behind the hit, and has more in common with this request than
// a replay costs: then waiting for it is cheaper than computing the same beside it.
bool Scheduler::find_forerunner(LiveRequest& request, int64_t hit_blocks) const {
  if (!options_.prefix_caching || request.wants_prompt_logprobs()) return false;
  const auto& wanted = request.hashes;
  if (hit_blocks >= static_cast<int64_t>(wanted.size())) return false;
  const int64_t worth = options_.replay.bounded ? options_.replay.window : 0;
  for (LiveRequest* other : running_) {
    const auto* prefilling = std::get_if<Prefilling>(&other->state);
    if (prefilling == nullptr || prefilling->residence.published != hit_blocks) continue;
    const auto& computed = other->hashes;
    const auto [mine, theirs] = std::mismatch(wanted.begin(), wanted.end(), computed.begin(), computed.end());
    const int64_t common = mine - wanted.begin();
    if (common <= hit_blocks || common * pool_.layout().tokens <= worth) continue;
    request.obstacle.forerunner = other->id;
    request.obstacle.forerunner_blocks = common;
    return true;
  }
  return false;
}

// Room for the whole sequence and its first new token, beside what running prompts still need and a block for each
// answer; otherwise prompts that were let in would push each other out.
bool Scheduler::has_room(LiveRequest& request, const Hit& hit) const {
  int64_t promised = 0;
  for (LiveRequest* other : running_) {
    if (!std::holds_alternative<Prefilling>(other->state)) {
      ++promised;
      continue;
    }
    const auto held = static_cast<int64_t>(other->residence()->blocks.ids().size());
    promised += std::max<int64_t>(0, pool_.blocks_for(other->length() + 1) - held);
  }
  const int64_t needed =
      pool_.blocks_for(request.length() + 1) - hit.tokens / pool_.layout().tokens + hit.free_blocks + promised;
  if (needed <= pool_.free_blocks()) return true;
  request.obstacle.free_blocks = needed - promised;
  request.obstacle.known_blocks = static_cast<size_t>(hit.known);
  return false;
}

Residence Scheduler::make_residence(const LiveRequest& request, const Hit& hit) {
  Residence residence;
  residence.slot = slots_.take();
  residence.blocks = pool_.table();
  residence.windows = hit.windows;
  residence.blocks.reserve(request.prompt_tokens + request.max_tokens);
  const int64_t blocks = hit.tokens / pool_.layout().tokens;
  residence.blocks.share({request.hashes.data(), static_cast<size_t>(blocks)});
  residence.published = blocks;
  residence.replay = plan_replay(options_.replay, hit.tokens, request.length());
  // Log-probabilities of a prompt need the decoder layers on all of it; a hand-over needs them on the last pass only.
  if (request.wants_prompt_logprobs()) residence.replay.decoder_from = 0;
  if (request.hand_over && options_.replay.bounded) residence.replay.decoder_from = request.length();
  residence.next = residence.replay.first;
  return residence;
}

// True when the request now waits for a source that has more of it than is here.
bool Scheduler::ask_source(LiveRequest& request, const Hit& hit) {
  if (request.wants_prompt_logprobs()) return false;
  const KvSource::Match match = source_->match(request);
  const int64_t block = pool_.layout().tokens;
  // Without windows the hit ends on a whole block, in front of the last token, and must be worth its replay.
  const int64_t tokens = match.windows ? std::min(match.tokens, request.length())
                                       : std::min(match.tokens, request.length() - 1) / block * block;
  const bool worth = match.windows || plan_replay(options_.replay, tokens, request.length()).cached > 0;
  if (tokens <= hit.tokens || !worth || (windows_ != nullptr && !match.windows)) return false;
  Residence residence = make_residence(request, hit);
  if (!residence.blocks.grow(tokens)) return false;
  residence.replay = match.windows ? plan_takeover(options_.replay, tokens, request.length())
                                   : plan_replay(options_.replay, tokens, request.length());
  residence.next = residence.replay.first;
  WaitingForKv waiting{.residence = std::move(residence), .tokens = tokens, .windows = match.windows};
  request.state = std::move(waiting);
  source_->load(request.id, request.residence()->blocks.ids(), hit.tokens, tokens);
  return true;
}

void Scheduler::kv_arrived(RequestId id, bool complete) {
  LiveRequest* request = find(id);
  auto* waiting = request == nullptr ? nullptr : std::get_if<WaitingForKv>(&request->state);
  if (waiting == nullptr) return;
  if (!complete) {
    request->state = Waiting{};
    return;
  }
  waiting->arrived = true;
  if (options_.prefix_caching) publish(*request, waiting->tokens);
}

void Scheduler::enter_prefill(LiveRequest& request, Residence residence) {
  waiting_.erase(&request);
  if (!request.cached_tokens) request.cached_tokens = residence.replay.cached;
  request.state = Prefilling{std::move(residence)};
  running_.insert(std::upper_bound(running_.begin(), running_.end(), &request, ServedBefore()), &request);
}

}  // namespace gannet
