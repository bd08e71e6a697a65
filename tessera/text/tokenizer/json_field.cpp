#include "tessera/text/tokenizer/json_field.h"

#include <algorithm>

#include <nlohmann/json.hpp>

namespace tessera::text {
namespace {

const nlohmann::json kNull;

}  // namespace

JsonField::JsonField(const nlohmann::json& value, std::string file, std::string path)
    : value_(value), file_(std::move(file)), path_(std::move(path)) {}

bool JsonField::is_null() const { return value().is_null(); }
bool JsonField::is_string() const { return value().is_string(); }
bool JsonField::is_object() const { return value().is_object(); }
bool JsonField::contains(const std::string& key) const {
  return value().is_object() && value().contains(key);
}

JsonField JsonField::at(const std::string& key) const {
  if (!value().is_object()) wrong_type("an object");
  const auto found = value().find(key);
  return {found != value().end() ? *found : kNull, file_, path_ + "." + key};
}

std::vector<JsonField> JsonField::items() const {
  if (!value().is_array()) wrong_type("an array");
  std::vector<JsonField> out;
  for (size_t i = 0; i < value().size(); ++i)
    out.emplace_back(value()[i], file_, path_ + "[" + std::to_string(i) + "]");
  return out;
}

std::vector<std::pair<std::string, JsonField>> JsonField::fields() const {
  if (!value().is_object()) wrong_type("an object");
  std::vector<std::pair<std::string, JsonField>> out;
  for (const auto& [key, field] : value().items())
    out.emplace_back(key, JsonField(field, file_, path_ + "." + key));
  return out;
}

const std::string& JsonField::as_string() const {
  if (!value().is_string()) wrong_type("a string");
  return value().get_ref<const std::string&>();
}

bool JsonField::as_bool() const {
  if (!value().is_boolean()) wrong_type("true or false");
  return value().get<bool>();
}

bool JsonField::as_bool(bool fallback) const { return is_null() ? fallback : as_bool(); }

int64_t JsonField::as_int(int64_t limit) const {
  const std::string need = "a whole number from 0 to " + std::to_string(limit - 1);
  if (!value().is_number_integer()) wrong_type(need);
  if (value().is_number_unsigned() ? value().get<uint64_t>() >= static_cast<uint64_t>(limit)
                                   : value().get<int64_t>() < 0)
    wrong_type(need);
  return value().get<int64_t>();
}

double JsonField::as_number() const {
  if (!value().is_number()) wrong_type("a number");
  return value().get<double>();
}

void JsonField::allow_fields(std::initializer_list<std::string_view> names) const {
  for (const auto& [key, field] : fields()) {
    if (std::find(names.begin(), names.end(), key) == names.end())
      throw field.error("TOKENIZER-UNSUPPORTED", "this setting is not supported");
  }
}

Error JsonField::error(std::string_view name, std::string what) const {
  Error error(ErrorKind::Model, name, std::move(what));
  error.in(place());
  return error;
}

void JsonField::unsupported(std::string_view what, std::string_view type) const {
  throw error("TOKENIZER-UNSUPPORTED", std::string(what) + " is not supported")
      .got("'" + std::string(type) + "'");
}

void JsonField::wrong_type(std::string_view need) const {
  std::string got = value().is_structured()
                        ? value().type_name()
                        : value().dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  if (got.size() > 80) got = got.substr(0, 77) + "...";
  throw error("TOKENIZER-FIELD", is_null() ? "missing field" : "wrong value").got(got).need(need);
}

}  // namespace tessera::text
