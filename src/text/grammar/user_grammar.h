#pragma once

#include <string_view>

#include "base/error.h"

namespace gannet::text::grammar {

// Whether a client's own grammar, in xgrammar's EBNF, may be compiled: of bounded size and depth, and without what
// names tokens instead of text. Its syntax is for the compiler to judge.
Status check_user_grammar(std::string_view ebnf);

}  // namespace gannet::text::grammar
