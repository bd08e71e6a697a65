#include "tessera/data/prompts/fields.h"

#include <algorithm>
#include <initializer_list>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "tessera/core/error.h"
#include "tessera/core/strings.h"
#include "tessera/io/json_values.h"

namespace tessera::data {
namespace {

using Json = nlohmann::ordered_json;

std::string names_of(const Json& object) {
  std::vector<std::string> names;
  for (const auto& item : object.items()) names.push_back(item.key());
  return names.empty() ? "an empty object" : "fields " + join(names, ", ");
}

bool has(const Json& object, std::initializer_list<const char*> fields) {
  return std::all_of(fields.begin(), fields.end(), [&](const char* field) { return object.contains(field); });
}

// Returns what to write in the dataset's entry for a record, or a message of one, with these fields; "" if
// this cannot be told.
std::string what_fits(const Json& object) {
  for (const char* list : {"messages", "conversations", "conversation"}) {
    const auto found = object.find(list);
    if (found == object.end() || !found->is_array() || found->empty() || !found->front().is_object())
      continue;
    const Json& first = found->front();
    const bool is_usual = std::string_view(list) == "messages";
    const std::string field = is_usual ? "" : std::string(", field_messages: ") + list;
    if (has(first, {"from", "value"})) {
      return std::string_view(list) == "conversations"
                 ? "these rows are type: sharegpt"
                 : "these rows are type: chat_template" + field +
                       ", message_property_mappings: {role: from, content: value}";
    }
    if (has(first, {"role", "content"})) return "these rows are type: chat_template" + field;
  }
  if (has(object, {"from", "value"}))
    return "these messages need message_property_mappings: {role: from, content: value}";
  if (has(object, {"role", "content"}))
    return "these messages need message_property_mappings: {role: role, content: content}";
  if (has(object, {"chosen", "rejected"}))
    return "these rows are preferences: set rl (docs/datasets.md lists the types)";
  if (has(object, {"prompt", "completion"})) return "these rows are type: prompt_completion";
  if (has(object, {"instruction", "output"})) return "these rows are type: alpaca";
  if (has(object, {"segments"})) return "these rows are type: input_output";
  if (has(object, {"input_ids"})) return "these rows are token ids: leave type blank";
  const std::pair<const char*, const char*> pairs[] = {{"prompt", "response"},      {"question", "answer"},
                                                       {"question", "response"},    {"input", "output"},
                                                       {"instruction", "response"}, {"query", "response"}};
  for (const auto& [asked, answered] : pairs) {
    if (!has(object, {asked, answered})) continue;
    return std::string("these rows may be type: alpaca, field_instruction: ") + asked +
           ", field_output: " + answered;
  }
  if (has(object, {"text"})) return "these rows are type: completion";
  return "";
}

}  // namespace

const Json& required_value(const Json& object, const std::string& field) {
  const auto found = object.find(field);
  if (found == object.end()) {
    throw Error(ErrorKind::Data, "MISSING-FIELD", "no field '" + field + "'")
        .got(names_of(object))
        .hint(what_fits(object));
  }
  return *found;
}

const std::string& required_text(const Json& object, const std::string& field) {
  const Json& value = required_value(object, field);
  if (const auto* text = value.get_ptr<const std::string*>()) return *text;
  throw Error(ErrorKind::Data, "FIELD-TYPE", "field '" + field + "' is not a text")
      .got(value.type_name())
      .need("string")
      .hint(value.is_null() ? "on_bad_line: skip skips such records" : "");
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
  const Json& value = required_value(object, field);
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

std::vector<int64_t> required_integers(const nlohmann::ordered_json& object, const std::string& field,
                                       int64_t low, int64_t high, std::optional<int64_t> also) {
  std::vector<int64_t> out;
  for (const auto& value : required_array(object, field)) {
    const std::optional<int64_t> number = io::integer_of(value);
    if (!number || ((*number < low || *number > high) && number != also)) {
      throw Error(ErrorKind::Data, "TOKEN-ID",
                  "field '" + field + "' at " + std::to_string(out.size()) + " is out of range")
          .got(value.dump().substr(0, 40))
          .need("an integer from " + std::to_string(low) + " to " + std::to_string(high) +
                (also ? ", or " + std::to_string(*also) : ""));
    }
    out.push_back(*number);
  }
  return out;
}

}  // namespace tessera::data
