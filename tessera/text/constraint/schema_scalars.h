// The strings and numbers of JSON schemas, as expressions of a grammar.
#pragma once

#include <string>

#include "tessera/text/constraint/json_rules.h"
#include "tessera/text/constraint/schema_keywords.h"

namespace tessera::text {

// The grammar must be that of the rules. All functions throw schema_error() for what is not supported.
// `excluded` holds strings or numbers that do not count.
Grammar::Expr string_of_schema(Grammar& grammar, JsonRules& rules, const SchemaJson& schema,
                               const SchemaJson& excluded, const std::string& place);
Grammar::Expr number_of_schema(Grammar& grammar, JsonRules& rules, const SchemaJson& schema, bool is_integer,
                               const SchemaJson& excluded, const std::string& place);
// Returns a string whose contents match a pattern. Throws what read_regex() throws.
Grammar::Expr matching_string(Grammar& grammar, JsonRules& rules, const SchemaJson& pattern,
                              const std::string& place);

}  // namespace tessera::text
