// The keywords of JSON schemas: which are read, and how two schemas are joined into one.
#pragma once

#include <set>
#include <string>

#include <nlohmann/json.hpp>

#include "tessera/core/error.h"
#include "tessera/text/constraint/json_rules.h"

namespace tessera::text {

using SchemaJson = nlohmann::ordered_json;

// Returns the error of a schema, at a place such as "#/properties/name".
Error schema_error(const std::string& place, const std::string& message);

// Tells whether a keyword says nothing about which values are valid.
bool is_annotation(const std::string& keyword);
// Throws schema_error() for a keyword that is not read.
void check_keywords(const SchemaJson& schema, const std::string& place);
// Returns the types of a schema: those that it names, or those that its keywords speak of, or all.
std::set<std::string> types_of(const SchemaJson& schema, const std::string& place);
// Tells whether a value has one of the types.
bool has_type(const SchemaJson& value, const std::set<std::string>& types);
// Returns the values of two keywords that are whole numbers from 0 on, as "minItems" and "maxItems".
MemberCount sizes_of(const SchemaJson& schema, const char* min, const char* max, const std::string& place);

// Returns a schema that accepts what both accept. Parts of it may be an allOf of both parts. Throws
// schema_error() where two keywords cannot be joined.
SchemaJson join_schemas(SchemaJson first, SchemaJson second, const std::string& place);

}  // namespace tessera::text
