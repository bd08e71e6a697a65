// A value inside a JSON file that knows its path, for messages.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "tessera/core/error.h"

namespace tessera::text {

// Refers to a document that must outlive it. Every accessor throws Error(Model) that names the file and the
// path when the value is of another type.
class JsonField {
 public:
  JsonField(const nlohmann::json& value, std::string file, std::string path = "$");

  bool is_null() const;
  bool is_string() const;
  bool is_object() const;
  bool contains(const std::string& key) const;
  // A field of an object; one that is not there reads as null.
  JsonField at(const std::string& key) const;
  // The items of an array.
  std::vector<JsonField> items() const;
  // The fields of an object.
  std::vector<std::pair<std::string, JsonField>> fields() const;

  const std::string& as_string() const;
  bool as_bool() const;
  bool as_bool(bool fallback) const;  // when null
  // In [0, limit).
  int64_t as_int(int64_t limit) const;
  double as_number() const;

  // Refuses fields that are not in the list: a setting that is not understood must not be passed over.
  void allow_fields(std::initializer_list<std::string_view> names) const;

  // "tokenizer.json: $.model.type"
  std::string place() const { return file_ + ": " + path_; }
  const std::string& path() const { return path_; }
  const nlohmann::json& value() const { return value_.get(); }
  // An error at this place.
  Error error(std::string_view name, std::string what) const;
  // The same for a "type" that is not known.
  [[noreturn]] void unsupported(std::string_view what, std::string_view type) const;

 private:
  [[noreturn]] void wrong_type(std::string_view need) const;

  std::reference_wrapper<const nlohmann::json> value_;
  std::string file_, path_;
};

}  // namespace tessera::text
