#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "base/error.h"
#include "engine/token_constraint.h"
#include "text/chat_request.h"
#include "text/tokenizer.h"

namespace gannet::text {

// What answers to one request must look like, ready to be used: shared by all of them.
class AnswerGrammar;

// Makes the grammars of requests for one tokenizer. Safe to use from several threads; compiling takes the caller's
// thread, up to the budget, so it must not be called where others wait.
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

  // Null if the request leaves its answers free. invalid_input: a schema, an expression or a grammar that cannot be
  // enforced, names the field and what it is; or it takes longer than the budget. overloaded: too many compile already.
  Result<std::shared_ptr<const AnswerGrammar>> compile(const ChatRequest& request);
  // For a plain text of that form; `field` names it in errors.
  Result<std::shared_ptr<const AnswerGrammar>> compile(const ResponseFormat& format, const std::string& field);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// For one answer. While the model reasons, anything may come but what would end the answer without the form it must
// have; from the end of the reasoning on (the token, not its spelling) the grammar holds.
std::shared_ptr<TokenConstraint> answer_constraint(std::shared_ptr<const AnswerGrammar> grammar);

}  // namespace gannet::text
