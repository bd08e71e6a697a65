#include "tessera/io/json_reader.h"

#include <cmath>
#include <cstdio>
#include <utility>

#include <nlohmann/json.hpp>

#include "tessera/io/file.h"
#include "tessera/io/json_file.h"
#include "tessera/io/json_values.h"

namespace tessera::io {
namespace {

constexpr int64_t kMaxBytes = int64_t{1} << 20;

std::string shown(const nlohmann::json& value) {
  std::string text = value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  if (text.size() > 60) text = text.substr(0, 57) + "...";
  return text;
}

std::string shown(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.10g", value);
  return text;
}

}  // namespace

Error missing_file(const std::string& file) {
  const std::string folder = parent_path(file);
  const auto has = [&](const char* name) { return exists(join_path(folder, name)); };
  Error error(ErrorKind::Model, "NO-FILE", "no such file");
  error.in(file);
  if (!exists(folder)) return error.got("no such folder");
  const bool wants_adapter = file.ends_with("adapter_config.json");
  if (wants_adapter && has("config.json")) {
    return error.got("the folder of a model")
        .need("an adapter's folder")
        .hint("name the folder that contains adapter_config.json");
  }
  if (!wants_adapter && has("adapter_config.json")) {
    return error.got("the folder of an adapter")
        .need("a model's folder")
        .hint("name the adapter's base model; tessera merge makes a model of both");
  }
  return error.got("a folder without it").need(wants_adapter ? "an adapter's folder" : "a model's folder");
}

JsonReader::JsonReader(std::string file, std::string prefix, std::shared_ptr<const nlohmann::json> object)
    : file_(std::move(file)), prefix_(std::move(prefix)), object_(std::move(object)) {}

std::string JsonReader::read_text(const std::string& file) {
  if (!exists(file)) throw missing_file(file);
  JsonLimits limits;
  limits.max_bytes = kMaxBytes;
  return read_json_text(file, ErrorKind::Model, limits);
}

JsonReader JsonReader::open(const std::string& file) { return parse(read_text(file), file); }

JsonReader JsonReader::parse(const std::string& text, const std::string& file, const std::string& prefix) {
  auto value = std::make_shared<nlohmann::json>(parse_json(text, file));
  if (!value->is_object()) {
    throw Error(ErrorKind::Model, "CONFIG", "not a JSON object")
        .at(file)
        .got(shown(*value))
        .need("an object");
  }
  return JsonReader(file, prefix, std::move(value));
}

const nlohmann::json* JsonReader::find(const std::string& key) const {
  read_->insert(key);
  const auto at = object_->find(key);
  return at == object_->end() || at->is_null() ? nullptr : &*at;
}

const nlohmann::json& JsonReader::require(const std::string& key) const {
  const nlohmann::json* value = find(key);
  if (value == nullptr) throw problem(key, "missing key");
  return *value;
}

Error JsonReader::problem(const std::string& key, const std::string& what) const {
  return Error(ErrorKind::Model, "CONFIG", what).in(file_ + ": key '" + prefix_ + key + "'");
}

bool JsonReader::has(const std::string& key) const { return find(key) != nullptr; }

bool JsonReader::is_null(const std::string& key) const {
  const auto at = object_->find(key);
  return at != object_->end() && at->is_null();
}

bool JsonReader::is_text(const std::string& key) const {
  const nlohmann::json* value = find(key);
  return value != nullptr && value->is_string();
}

bool JsonReader::is_empty(const std::string& key) const {
  const nlohmann::json* value = find(key);
  if (value == nullptr) return true;
  if (value->is_boolean()) return !value->get<bool>();
  return value->is_string() ? value->get_ref<const std::string&>().empty()
                            : value->is_structured() && value->empty();
}

int64_t JsonReader::to_integer(const nlohmann::json& value, const std::string& key, int64_t min,
                               int64_t max) const {
  const std::string range = "an integer from " + std::to_string(min) + " to " + std::to_string(max);
  const std::optional<int64_t> number = integer_of(value);
  if (!number || *number < min || *number > max) {
    throw problem(key, "bad value").got(shown(value)).need(range);
  }
  return *number;
}

int64_t JsonReader::integer(const std::string& key, int64_t min, int64_t max,
                            std::optional<int64_t> fallback) const {
  if (!has(key) && fallback.has_value()) return *fallback;
  return to_integer(require(key), key, min, max);
}

std::optional<int64_t> JsonReader::optional_integer(const std::string& key, int64_t min, int64_t max) const {
  if (!has(key)) return std::nullopt;
  return to_integer(require(key), key, min, max);
}

double JsonReader::number(const std::string& key, double min, double max,
                          std::optional<double> fallback) const {
  if (!has(key) && fallback.has_value()) return *fallback;
  const nlohmann::json& value = require(key);
  const double number = value.is_number() ? value.get<double>() : std::nan("");
  if (!(number >= min && number <= max)) {
    throw problem(key, "bad value")
        .got(shown(value))
        .need("a number from " + shown(min) + " to " + shown(max));
  }
  return number;
}

bool JsonReader::boolean(const std::string& key, bool fallback) const {
  const nlohmann::json* value = find(key);
  if (value == nullptr) return fallback;
  if (!value->is_boolean()) throw problem(key, "bad value").got(shown(*value)).need("true or false");
  return value->get<bool>();
}

std::string JsonReader::text(const std::string& key, std::optional<std::string> fallback) const {
  if (!has(key) && fallback.has_value()) return *fallback;
  const nlohmann::json& value = require(key);
  if (!value.is_string()) throw problem(key, "bad value").got(shown(value)).need("a string");
  return value.get<std::string>();
}

std::vector<int64_t> JsonReader::integers(const std::string& key, int64_t min, int64_t max) const {
  const nlohmann::json* value = find(key);
  std::vector<int64_t> numbers;
  if (value == nullptr) return numbers;
  if (!value->is_array()) return {to_integer(*value, key, min, max)};
  for (const nlohmann::json& item : *value) numbers.push_back(to_integer(item, key, min, max));
  return numbers;
}

std::vector<double> JsonReader::numbers(const std::string& key, double min, double max) const {
  const nlohmann::json* value = find(key);
  std::vector<double> numbers;
  if (value == nullptr) return numbers;
  if (!value->is_array()) throw problem(key, "bad value").got(shown(*value)).need("a list of numbers");
  for (const nlohmann::json& item : *value) {
    const double number = item.is_number() ? item.get<double>() : std::nan("");
    if (!(number >= min && number <= max)) {
      throw problem(key, "bad entry")
          .got(shown(item))
          .need("a number from " + shown(min) + " to " + shown(max));
    }
    numbers.push_back(number);
  }
  return numbers;
}

std::vector<std::string> JsonReader::texts(const std::string& key) const {
  const nlohmann::json* value = find(key);
  std::vector<std::string> texts;
  if (value == nullptr) return texts;
  if (!value->is_array()) throw problem(key, "bad value").got(shown(*value)).need("a list of strings");
  for (const nlohmann::json& item : *value) {
    if (!item.is_string()) throw problem(key, "bad entry").got(shown(item)).need("a string");
    texts.push_back(item.get<std::string>());
  }
  return texts;
}

std::vector<std::string> JsonReader::keys() const {
  std::vector<std::string> keys;
  for (const auto& [key, value] : object_->items()) {
    if (!value.is_null()) keys.push_back(key);
  }
  return keys;
}

std::optional<JsonReader> JsonReader::object(const std::string& key) const {
  const nlohmann::json* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_object()) throw problem(key, "bad value").got(shown(*value)).need("an object");
  return JsonReader(file_, prefix_ + key + ".", std::make_shared<const nlohmann::json>(*value));
}

}  // namespace tessera::io
