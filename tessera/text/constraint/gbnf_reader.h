// Grammars in the notation of llama.cpp (GBNF), which is also the EBNF of other servers.
#pragma once

#include <string_view>

#include "tessera/text/constraint/grammar.h"

namespace tessera::text {

// Reads rules `name ::= alternatives` of "texts", [character classes], ., (groups), other rules, and the
// quantifiers * + ? {n,m}, with comments behind #. The rule `root` is the whole. Throws Error(Config):
// "CONSTRAINT-GRAMMAR" for one that cannot be read, and "CONSTRAINT-SIZE".
Grammar read_gbnf(std::string_view text);

}  // namespace tessera::text
