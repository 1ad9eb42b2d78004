#include "engine/runner.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "base/cuda_error.h"

namespace gannet {

MaskFiller::MaskFiller() : thread_([this] { work(); }) {}

MaskFiller::~MaskFiller() {
  {
    const std::scoped_lock lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void MaskFiller::start(std::vector<Job> jobs) {
  if (jobs.empty()) return;
  {
    const std::scoped_lock lock(mutex_);
    jobs_ = std::move(jobs);
    busy_ = true;
  }
  changed_.notify_all();
}

void MaskFiller::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return !busy_; });
}

void MaskFiller::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stopping_ || busy_; });
    if (!busy_) return;
    lock.unlock();
    for (const Job& job : jobs_) {
      try {
        job.constraint->fill_mask(job.mask);
      } catch (const std::exception& error) {
        *job.error = error.what();
      }
    }
    lock.lock();
    busy_ = false;
    changed_.notify_all();
  }
}

Runner::Runner(LoadedModel& model, int64_t slots, int64_t logit_rows, WindowStore* windows)
    : model_(model), windows_(windows), logits_(logit_rows * model.config().vocab_size), candidates_(logit_rows) {
  model.model().pin(logits_);
  states_.reserve(slots);
  for (int64_t i = 0; i < slots; ++i) states_.push_back(model.sequence(i));
  thread_ = std::thread([this] { work(); });
}

Runner::~Runner() {
  {
    const std::scoped_lock lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
  model_.model().unpin(logits_);
}

void Runner::launch(const StepPlan& step) {
  {
    const std::scoped_lock lock(mutex_);
    step_ = &step;
  }
  changed_.notify_all();
}

Result<StepResult> Runner::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return result_.has_value(); });
  return *std::exchange(result_, std::nullopt);
}

void Runner::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stopping_ || step_ != nullptr; });
    if (step_ == nullptr) return;
    const StepPlan& step = *step_;
    lock.unlock();
    std::optional<Result<StepResult>> result;
    // A step that runs out of memory must not take the requests that wait with it.
    try {
      result = run(step);
    } catch (const CudaError& error) {
      mask_filler_.wait();
      device_lost_ = true;
      result = failed("the GPU failed: {}", error.what());
    } catch (const std::exception& error) {
      mask_filler_.wait();
      result = failed("the step failed: {}", error.what());
    }
    lock.lock();
    step_ = nullptr;
    result_ = std::move(result);
    changed_.notify_all();
  }
}

StepResult Runner::run(const StepPlan& step) {
  make_batch(step);
  start_masks(step);
  model_.model().forward(batch_, logits_.data(), nullptr, candidates_.data());
  keep_windows(step);
  mask_filler_.wait();
  return sample(step);
}

int64_t Runner::logit_rows(const StepPart& part) const {
  return part.prompt_logprobs ? part.rows : (part.samples ? 1 : 0);
}

void Runner::make_batch(const StepPlan& step) {
  batch_.clear();
  for (const StepPart& part : step.parts) {
    if (part.begin) begin_sequence(part);
    SequenceState& state = states_[part.slot];
    GANNET_CHECK(state.length() == part.start);
    batch_.sequences.push_back({.state = &state, .first_row = batch_.rows(), .rows = part.rows});
    part.request->tokens.append_to(batch_.ids, static_cast<size_t>(part.start), static_cast<size_t>(part.rows));
    for (int64_t r = batch_.rows() - logit_rows(part); r < batch_.rows(); ++r) {
      batch_.logit_rows.push_back(static_cast<int32_t>(r));
      if (model_.model().gives_candidates()) batch_.candidates_only.push_back(chooses_among_candidates(part) ? 1 : 0);
    }
  }
}

void Runner::begin_sequence(const StepPart& part) {
  SequenceState& state = states_[part.slot];
  // As far as n-grams look back.
  const int64_t reach = std::min(part.start, model_.config().engram_max_ngram_size);
  std::vector<int32_t> before;
  part.request->tokens.append_to(before, static_cast<size_t>(part.start - reach), static_cast<size_t>(reach));
  state.begin({.blocks = part.blocks,
               .first = part.begin->first,
               .cached = part.begin->cached,
               .encoder_from = part.begin->encoder_from,
               .decoder_from = part.begin->decoder_from,
               .history = model_.model().history(before)});
  if (part.restore) model_.model().restore_windows(state, windows_->data(*part.restore));
}

void Runner::keep_windows(const StepPlan& step) {
  for (const StepPart& part : step.parts) {
    if (!part.save) continue;
    SequenceState& state = states_[part.slot];
    model_.model().save_windows(state, windows_->data(*part.save));
  }
}

void Runner::start_masks(const StepPlan& step) {
  std::vector<MaskFiller::Job> jobs;
  masks_.resize(step.parts.size());
  mask_errors_.assign(step.parts.size(), {});
  for (size_t i = 0; i < step.parts.size(); ++i) {
    TokenConstraint* constraint = step.parts[i].request->request.constraint.get();
    const bool wanted = step.parts[i].samples && constraint != nullptr && constraint->active();
    masks_[i].resize(wanted ? (model_.config().vocab_size + 31) / 32 : 0);
    if (wanted) jobs.push_back({constraint, masks_[i], &mask_errors_[i]});
  }
  mask_filler_.start(std::move(jobs));
}

StepResult Runner::sample(const StepPlan& step) {
  StepResult result;
  result.parts.resize(step.parts.size());
  std::vector<int64_t> first_logits;
  int64_t rows = 0;
  for (const StepPart& part : step.parts) {
    first_logits.push_back(rows);
    rows += logit_rows(part);
  }
  const auto parts = static_cast<int64_t>(step.parts.size());
  model_.device().pool->parallel_for(parts, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) sample_guarded(step, i, first_logits[i], result.parts[i]);
  });
  return result;
}

// A request whose constraint fails must not take the others with it, nor the pool's thread.
void Runner::sample_guarded(const StepPlan& step, int64_t index, int64_t first_logits, StepResult::Part& out) {
  std::string error = mask_errors_[index];
  try {
    if (error.empty()) sample_part(step.parts[index], first_logits, masks_[index], out);
  } catch (const std::exception& exception) {
    error = exception.what();
  }
  if (error.empty()) return;
  out.token.reset();
  out.error = Error{ErrorKind::failed, fmt::format("no next token could be chosen: {}", error)};
}

bool Runner::chooses_among_candidates(const StepPart& part) const {
  const LiveRequest& request = *part.request;
  return model_.model().gives_candidates() && part.samples && !part.prompt_logprobs &&
         request.request.constraint == nullptr &&
         request.sampler.candidates_suffice(part.end() - request.prompt_tokens);
}

void Runner::sample_part(const StepPart& part, int64_t first_logits, std::span<const uint32_t> mask,
                         StepResult::Part& out) {
  LiveRequest& request = *part.request;
  const int64_t vocab = model_.config().vocab_size;
  const auto row = [&](int64_t r) { return std::span(logits_).subspan((first_logits + r) * vocab, vocab); };
  if (part.prompt_logprobs) {
    for (int64_t r = 0; r < part.rows && part.start + r + 1 < request.length(); ++r) {
      const int32_t next = request.tokens[static_cast<size_t>(part.start + r + 1)];
      out.prompt_logprobs.push_back(Sampler::describe(row(r), next, request.request.sampling.prompt_logprobs));
    }
  }
  if (!part.samples) return;
  // The answer's tokens up to this row; others may be planned already.
  const int64_t generated = part.end() - request.prompt_tokens;
  if (chooses_among_candidates(part)) {
    const RowCandidates& likeliest = candidates_[first_logits];
    out.token = request.sampler.choose_among(likeliest.logits, likeliest.ids, generated);
    return;
  }
  out.token = request.sampler.choose(row(logit_rows(part) - 1), generated, mask);
  if (request.request.constraint != nullptr) request.request.constraint->accept(out.token->id);
}

}  // namespace gannet
