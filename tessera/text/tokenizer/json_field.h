// A value inside a JSON file, which knows its path for messages.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "tessera/core/error.h"

namespace tessera::text {

// References a document that must outlive it. Every accessor throws Error(Model), naming the file and the
// path, if the value is of another type.
class JsonField {
 public:
  JsonField(const nlohmann::json& value, std::string file, std::string path = "$");

  bool is_null() const;
  bool is_string() const;
  bool is_object() const;
  bool contains(const std::string& key) const;
  // Returns a field of an object; a missing one reads as null.
  JsonField at(const std::string& key) const;
  // Returns the items of an array.
  std::vector<JsonField> items() const;
  // Returns the fields of an object.
  std::vector<std::pair<std::string, JsonField>> fields() const;

  const std::string& as_string() const;
  bool as_bool() const;
  bool as_bool(bool fallback) const;  // `fallback` if the value is null
  // Returns an integer in [0, limit).
  int64_t as_int(int64_t limit) const;
  double as_number() const;

  // Refuses fields that are not in the list, since a setting that is not understood must not be ignored.
  void allow_fields(std::initializer_list<std::string_view> names) const;

  // Returns the file and path: "tokenizer.json: $.model.type".
  std::string place() const { return file_ + ": " + path_; }
  const std::string& path() const { return path_; }
  const nlohmann::json& value() const { return value_.get(); }
  // Makes an error at this place.
  Error error(std::string_view name, std::string what) const;
  // Throws the error for an unknown "type" of a part called `what`.
  [[noreturn]] void unsupported(std::string_view what, std::string_view type) const;

 private:
  [[noreturn]] void wrong_type(std::string_view need) const;

  std::reference_wrapper<const nlohmann::json> value_;
  std::string file_, path_;
};

}  // namespace tessera::text
