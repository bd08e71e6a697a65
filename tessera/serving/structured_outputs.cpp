#include "tessera/serving/structured_outputs.h"

#include <string>
#include <utility>
#include <vector>

#include "tessera/core/error.h"

namespace tessera::serving {
namespace {

using text::ConstraintSource;
using Kind = ConstraintSource::Kind;

// A constraint and the field that gives it.
struct Given {
  std::string place;
  ConstraintSource source;
};

Json any_object() { return {{"type", "object"}}; }

// Other clients send a schema as a text, too.
Json schema_of(const Json& value, const std::string& place) {
  if (!value.is_string()) return value;
  try {
    return parse_body(value.get<std::string>());
  } catch (const ApiError& error) {
    throw ApiError::bad(place + ": " + error.what(), place);
  }
}

void read_response_format(Fields& fields, std::vector<Given>& given) {
  const Json* value = fields.find("response_format");
  if (value == nullptr) return;
  Fields format(*value, fields.place("response_format") + ".");
  const std::string type = format.text("type").value_or("");
  if (type == "json_object") {
    given.push_back({fields.place("response_format"), {Kind::JsonSchema, any_object()}});
  } else if (type == "json_schema") {
    const Json* named = format.find("json_schema");
    if (named == nullptr) throw format.problem("json_schema", "this field is needed");
    Fields inner(*named, format.place("json_schema") + ".");
    const Json* schema = inner.find("schema");
    if (schema == nullptr) throw inner.problem("schema", "this field is needed");
    given.push_back({inner.place("schema"), {Kind::JsonSchema, *schema}});
  } else if (type != "text") {
    throw format.problem("type", "text, json_object or json_schema is needed");
  }
}

// Reads the constraints whose names have a prefix, as "guided_json".
void read_named(Fields& fields, const std::string& prefix, std::vector<Given>& given) {
  const std::pair<const char*, Kind> kinds[] = {{"json", Kind::JsonSchema},
                                                {"regex", Kind::Regex},
                                                {"choice", Kind::Choice},
                                                {"grammar", Kind::Grammar}};
  for (const auto& [name, kind] : kinds) {
    const Json* value = fields.find(prefix + name);
    if (value == nullptr) continue;
    const std::string place = fields.place(prefix + name);
    given.push_back({place, {kind, kind == Kind::JsonSchema ? schema_of(*value, place) : *value}});
  }
  if (fields.boolean(prefix + "json_object", false))
    given.push_back({fields.place(prefix + "json_object"), {Kind::JsonSchema, any_object()}});
  for (const char* name : {"structural_tag", "whitespace_pattern"})
    fields.refuse_unless(prefix + name, Json(), "this field changes the answer and is not supported");
}

void read_structured(Fields& fields, std::vector<Given>& given) {
  const Json* value = fields.find("structured_outputs");
  if (value == nullptr) return;
  Fields inner(*value, fields.place("structured_outputs") + ".");
  std::vector<Given> here;
  read_named(inner, "", here);
  inner.refuse_unless("disable_additional_properties", false, "the schema says which properties there are");
  const bool allows_space = !inner.boolean("disable_any_whitespace", false);
  inner.ignore({"disable_fallback"});
  const auto unknown = inner.unknown();
  if (!unknown.empty() || here.empty()) {
    throw ApiError::bad("structured_outputs: json, regex, choice, grammar or json_object is needed",
                        inner.place(unknown.empty() ? "json" : unknown.front()));
  }
  for (Given& each : here) {
    each.source.allows_space = allows_space;
    given.push_back(std::move(each));
  }
}

}  // namespace

std::shared_ptr<text::Constraint> read_structured_outputs(Fields& fields, const ServedModel& model) {
  std::vector<Given> given;
  read_response_format(fields, given);
  read_structured(fields, given);
  read_named(fields, "guided_", given);
  fields.ignore({"guided_decoding_backend"});
  if (given.empty()) return nullptr;
  const std::string& place = given.front().place;
  if (given.size() > 1) {
    throw ApiError::bad(given[1].place + ": an answer has one constraint alone, and " + place + " gives one",
                        given[1].place);
  }
  try {
    return model.constraints->make(given.front().source);
  } catch (const Error& error) {
    throw ApiError::bad(place + ": " + error.what(), place);
  }
}

}  // namespace tessera::serving
