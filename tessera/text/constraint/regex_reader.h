// Regular expressions as parts of a grammar.
#pragma once

#include <functional>
#include <string_view>

#include "tessera/text/constraint/grammar.h"

namespace tessera::text {

struct RegexOptions {
  // Tells how a character of a set is written; by default as itself.
  std::function<Grammar::Expr(const CharSet&)> chars = nullptr;
  // The expression may match anywhere in the text, unless its anchors say otherwise. By default it matches
  // the whole text, with or without them.
  bool is_search = false;
};

// Adds the expression of a regular expression: characters, classes, groups, alternatives and quantifiers. \d,
// \w and \s are ASCII. Throws Error(Config, "CONSTRAINT-REGEX") for one that is not valid, or has what is not
// supported: lookaround, backreferences, word boundaries, flags, Unicode properties, possessive quantifiers,
// and anchors that are not at an end of the whole.
Grammar::Expr read_regex(Grammar& grammar, std::string_view pattern, const RegexOptions& options = {});

}  // namespace tessera::text
