#include "tessera/data/prompts/fields.h"

#include <vector>

#include <nlohmann/json.hpp>

#include "tessera/core/error.h"
#include "tessera/core/strings.h"

namespace tessera::data {
namespace {

using Json = nlohmann::ordered_json;

std::string names_of(const Json& object) {
  std::vector<std::string> names;
  for (const auto& item : object.items()) names.push_back(item.key());
  return names.empty() ? "an empty object" : "fields " + join(names, ", ");
}

const Json& required(const Json& object, const std::string& field) {
  const auto found = object.find(field);
  if (found == object.end()) {
    throw Error(ErrorKind::Data, "MISSING-FIELD", "no field '" + field + "'").got(names_of(object));
  }
  return *found;
}

}  // namespace

const std::string& required_text(const Json& object, const std::string& field) {
  const Json& value = required(object, field);
  if (const auto* text = value.get_ptr<const std::string*>()) return *text;
  throw Error(ErrorKind::Data, "FIELD-TYPE", "field '" + field + "' is not a text")
      .got(value.type_name())
      .need("string");
}

std::string optional_text(const Json& object, const std::string& field) {
  const Json* value = find_field(object, field);
  if (value == nullptr) return "";
  if (const auto* text = value->get_ptr<const std::string*>()) return *text;
  throw Error(ErrorKind::Data, "FIELD-TYPE", "field '" + field + "' is not a text")
      .got(value->type_name())
      .need("string");
}

const Json& required_array(const Json& object, const std::string& field) {
  const Json& value = required(object, field);
  if (!value.is_array()) {
    throw Error(ErrorKind::Data, "FIELD-TYPE", "field '" + field + "' is not a list")
        .got(value.type_name())
        .need("array");
  }
  if (value.empty()) throw Error(ErrorKind::Data, "EMPTY-FIELD", "field '" + field + "' is an empty list");
  return value;
}

const Json* find_field(const Json& object, const std::string& field) {
  const auto found = object.find(field);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

}  // namespace tessera::data
