#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/error.h"
#include "engine/token_constraint.h"
#include "text/chat_request.h"
#include "text/tokenizer.h"

namespace gannet::text {

// Gives answers the form that their requests ask for, for one tokenizer. Safe to use from several threads; compiling
// takes the caller's thread, up to the budget, so it must not be called where others wait.
class GrammarCompiler {
 public:
  struct Options {
    size_t cache_bytes = size_t{256} << 20;    // compiled grammars that are kept, last used first
    std::chrono::milliseconds budget{1000};    // of the processor's time for one grammar
    std::chrono::milliseconds patience{2000};  // wall time that one waits while others compile
  };

  // The tokenizer must outlive the object. `vocab_size` may be larger than the tokenizer's; `eos` ends an answer.
  GrammarCompiler(const Tokenizer& tokenizer, int64_t vocab_size, int32_t eos, Options options);
  GrammarCompiler(const Tokenizer& tokenizer, int64_t vocab_size, int32_t eos);
  ~GrammarCompiler();
  GrammarCompiler(const GrammarCompiler&) = delete;
  GrammarCompiler& operator=(const GrammarCompiler&) = delete;

  // The constraint of one answer to the request; null if that is left free. While the model reasons, anything may come
  // but what would end the answer without its form; from the end of the reasoning on (the token, not its spelling) the
  // grammar holds. invalid_input: a schema, an expression or a grammar that cannot be enforced, or takes longer than
  // the budget; names the field. overloaded: too many are being prepared already.
  Result<std::shared_ptr<TokenConstraint>> constrain(const ChatRequest& request);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace gannet::text
