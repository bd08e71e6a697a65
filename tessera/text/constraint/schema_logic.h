// The keywords `not` and `if` of JSON schemas, as far as a grammar can follow them exactly.
#pragma once

#include <set>
#include <string>

#include "tessera/text/constraint/schema_keywords.h"

namespace tessera::text {

// The values that `not` leaves out.
struct Exclusions {
  std::set<std::string> types;
  SchemaJson values = SchemaJson::array();

  bool has(const SchemaJson& value) const;
  // Returns those of the values that have a type.
  SchemaJson of_type(const std::string& type) const;
};

// Reads `not`, which may be {"type": ...}, {"enum": ...} or {"const": ...}. Throws schema_error() for any
// other.
Exclusions exclusions_of(const SchemaJson& schema, const std::string& place);

// Returns a schema with `if` as one with an anyOf of both cases. Throws schema_error() unless the condition
// is about the value of one property that the schema requires.
SchemaJson cases_of(SchemaJson schema, const std::string& place);

}  // namespace tessera::text
