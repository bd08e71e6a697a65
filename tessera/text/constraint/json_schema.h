// JSON schemas as grammars.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "tessera/text/constraint/grammar.h"

namespace tessera::text {

// Returns the grammar of JSON texts that a schema accepts (drafts 7 to 2020-12). It has fewer texts than the
// schema in these ways: members come in the order of `properties`; an object that names properties, and an
// array that has `prefixItems`, has no others unless the schema says which; numbers with bounds have no
// exponents; and there is little white space (json_rules.h), or none. oneOf is read as anyOf.
//
// A keyword that is not supported, or cannot be joined with another one, is never left out: it throws
// Error(Config, "CONSTRAINT-SCHEMA") with its place. Throws Error(Config, "CONSTRAINT-SIZE") for a schema
// that is too large.
Grammar read_json_schema(const nlohmann::ordered_json& schema, bool allows_space);

}  // namespace tessera::text
