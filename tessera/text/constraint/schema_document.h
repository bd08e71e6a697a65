// The document of a JSON schema, whose parts refer to each other by their places.
#pragma once

#include <cstdint>
#include <string>

#include "tessera/text/constraint/schema_keywords.h"

namespace tessera::text {

class SchemaDocument {
 public:
  // The schema must outlive this object.
  explicit SchemaDocument(const SchemaJson& root) : root_(root) {}

  // Returns the schema at a place such as "#/$defs/name". Throws schema_error() if nothing is there.
  const SchemaJson& at(const std::string& place) const;
  // Counts a part that is read. Throws Error(Config, "CONSTRAINT-SIZE") if there are too many, as of a schema
  // that refers to itself without end.
  void count(const std::string& place);
  // Returns the schema with what it refers to in the place of the reference.
  SchemaJson resolved(SchemaJson schema, const std::string& place);
  // Returns a schema that has an allOf, joined with its parts.
  SchemaJson joined(SchemaJson schema, const std::string& place);

 private:
  const SchemaJson& root_;
  int64_t num_parts_ = 0;
};

// Returns the place that the $ref of a schema names.
std::string reference_of(const SchemaJson& schema, const std::string& place);
// Returns the value of a keyword that is an array of schemas.
const SchemaJson& schemas_of(const SchemaJson& schema, const char* keyword, const std::string& place);

}  // namespace tessera::text
