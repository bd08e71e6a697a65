#include "tessera/serving/fields.h"

#include <cmath>
#include <sstream>
#include <utility>

#include "tessera/core/error.h"
#include "tessera/data/readers/parse_record.h"

namespace tessera::serving {
namespace {

std::string shown(double number) {
  std::ostringstream text;
  text << number;
  return text.str();
}

template <class T>
std::string range(T min, T max) {
  return shown(static_cast<double>(min)) + " to " + shown(static_cast<double>(max));
}

// Returns a whole number, also where it is written as 5.0; nothing for anything else.
std::optional<int64_t> whole(const Json& value) {
  if (value.is_number_unsigned() && value.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX))
    return std::nullopt;
  if (value.is_number_integer()) return value.get<int64_t>();
  if (!value.is_number_float()) return std::nullopt;
  const double number = value.get<double>();
  if (std::floor(number) != number || std::abs(number) > 0x1p53) return std::nullopt;
  return static_cast<int64_t>(number);
}

// An object is searched and filled one member after another, so that a huge one would take hours.
constexpr int64_t kMostMembers = 4096;

// Returns whether an object of the text, which may be any bytes, has more members than are taken.
bool has_huge_object(std::string_view text) {
  std::vector<int64_t> members;
  bool is_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '"') is_string = !is_string;
    if (is_string && c == '\\') ++i;
    if (is_string) continue;
    if (c == '{' || c == '[') members.push_back(0);
    if ((c == '}' || c == ']') && !members.empty()) members.pop_back();
    if (c == ':' && !members.empty() && ++members.back() > kMostMembers) return true;
  }
  return false;
}

}  // namespace

Json parse_body(const std::string& body) {
  if (has_huge_object(body))
    throw ApiError::bad("an object of the body has more than " + std::to_string(kMostMembers) + " members");
  try {
    return data::parse_record({.text = body}, "request");
  } catch (const Error& error) {
    throw ApiError::bad("the body is no JSON object that is taken here: " + std::string(error.message()));
  }
}

Fields::Fields(const Json& object, std::string path) : object_(object), path_(std::move(path)) {
  if (!object.is_object())
    throw ApiError::bad("an object is needed", path_.empty() ? "" : path_.substr(0, path_.size() - 1));
}

const Json* Fields::find(const std::string& name) {
  known_.insert(name);
  const auto found = object_.find(name);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

bool Fields::boolean(const std::string& name, bool fallback) {
  const Json* value = find(name);
  if (value == nullptr) return fallback;
  if (!value->is_boolean()) throw problem(name, "true or false is needed");
  return value->get<bool>();
}

std::optional<int64_t> Fields::integer(const std::string& name, int64_t min, int64_t max) {
  const Json* value = find(name);
  if (value == nullptr) return std::nullopt;
  const auto number = whole(*value);
  if (!number || *number < min || *number > max)
    throw problem(name, "a whole number from " + range(min, max) + " is needed");
  return number;
}

std::optional<double> Fields::number(const std::string& name, double min, double max) {
  const Json* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number() || !(value->get<double>() >= min && value->get<double>() <= max))
    throw problem(name, "a number from " + range(min, max) + " is needed");
  return value->get<double>();
}

std::optional<std::string> Fields::text(const std::string& name) {
  const Json* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string()) throw problem(name, "a string is needed");
  return value->get<std::string>();
}

std::vector<int64_t> Fields::integers(const std::string& name, int64_t min, int64_t max) {
  std::vector<int64_t> numbers;
  const Json* value = find(name);
  if (value == nullptr) return numbers;
  if (!value->is_array()) throw problem(name, "an array of whole numbers is needed");
  for (const Json& each : *value) {
    const auto number = whole(each);
    if (!number || *number < min || *number > max)
      throw problem(name, "whole numbers from " + range(min, max) + " are needed");
    numbers.push_back(*number);
  }
  return numbers;
}

void Fields::ignore(std::initializer_list<std::string_view> names) {
  for (const std::string_view name : names) known_.emplace(name);
}

void Fields::refuse_unless(const std::string& name, const Json& harmless, const std::string& why) {
  const Json* value = find(name);
  if (value == nullptr || *value == harmless) return;
  if (harmless.is_array() && value->is_object() && value->empty()) return;
  throw problem(name, why);
}

std::vector<std::string> Fields::unknown() const {
  std::vector<std::string> names;
  for (const auto& member : object_.items()) {
    if (!known_.contains(member.key())) names.push_back(member.key());
  }
  return names;
}

}  // namespace tessera::serving
