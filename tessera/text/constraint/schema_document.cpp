#include "tessera/text/constraint/schema_document.h"

#include <utility>

#include "tessera/text/constraint/grammar.h"

namespace tessera::text {

using Json = SchemaJson;

const Json& SchemaDocument::at(const std::string& place) const {
  if (place == "#") return root_;
  try {
    if (place.starts_with("#/")) return root_.at(Json::json_pointer(place.substr(1)));
  } catch (const Json::exception&) {
    // Nothing is there.
  }
  throw schema_error(place, "$ref needs the place of a schema in the same document, as #/$defs/name");
}

void SchemaDocument::count(const std::string& place) {
  constexpr int64_t kMostParts = 20000;
  if (++num_parts_ <= kMostParts) return;
  throw constraint_error("SIZE", "the schema is too large or refers to itself without end")
      .got(place)
      .need("at most " + std::to_string(kMostParts) + " parts");
}

Json SchemaDocument::resolved(Json schema, const std::string& place) {
  while (schema.is_object() && schema.contains("$ref")) {
    count(place);
    const Json target = at(reference_of(schema, place));
    schema.erase("$ref");
    schema = join_schemas(std::move(schema), target, place);
  }
  return schema;
}

Json SchemaDocument::joined(Json schema, const std::string& place) {
  const Json parts = schemas_of(schema, "allOf", place);
  schema.erase("allOf");
  for (const Json& part : parts) {
    count(place);
    schema = join_schemas(std::move(schema), resolved(part, place), place + "/allOf");
  }
  return schema;
}

std::string reference_of(const Json& schema, const std::string& place) {
  const Json& reference = schema.at("$ref");
  if (!reference.is_string()) throw schema_error(place + "/$ref", "a text is needed");
  return reference.get<std::string>();
}

const Json& schemas_of(const Json& schema, const char* keyword, const std::string& place) {
  const Json& list = schema.at(keyword);
  if (!list.is_array() || list.empty())
    throw schema_error(place + "/" + keyword, "an array of schemas is needed");
  return list;
}

}  // namespace tessera::text
