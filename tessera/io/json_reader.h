// Typed access to the small JSON objects that describe models and adapters, with errors that name the file
// and the key.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "tessera/core/error.h"

namespace tessera::io {

// Makes the Error(Model, "NO-FILE") for a missing `file` that would make its folder a model or an adapter.
// The error says what the folder is instead.
Error missing_file(const std::string& file);

// Reads one JSON object; keys that are null count as absent. Every problem is an Error(Model,
// "CONFIG") at "<file>: key '<path>'".
class JsonReader {
 public:
  // Reads and parses `file` (at most 1 MiB). The top value must be an object.
  static JsonReader open(const std::string& file);
  // Parses `text`, which was read from `file` before. The top value must be an object. Errors put `prefix`
  // before the names of its keys.
  static JsonReader parse(const std::string& text, const std::string& file, const std::string& prefix = "");
  // Returns the text of the small JSON file `file` (at most 1 MiB). Throws Error(Model) for a file that does
  // not exist or is too large.
  static std::string read_text(const std::string& file);

  bool has(const std::string& key) const;
  // Returns whether the key is there and null.
  bool is_null(const std::string& key) const;
  bool is_text(const std::string& key) const;
  // Returns whether the key is absent, or holds false or an empty list, object or string.
  bool is_empty(const std::string& key) const;
  // The getters throw the Error for a value of another type or outside [min, max], and for a missing key
  // without a `fallback`.
  int64_t integer(const std::string& key, int64_t min, int64_t max,
                  std::optional<int64_t> fallback = {}) const;
  // Reads a finite number within [min, max].
  double number(const std::string& key, double min, double max, std::optional<double> fallback = {}) const;
  bool boolean(const std::string& key, bool fallback) const;
  std::string text(const std::string& key, std::optional<std::string> fallback = {}) const;
  std::optional<int64_t> optional_integer(const std::string& key, int64_t min, int64_t max) const;
  // Reads an integer or a list of integers; the result is empty when the key is absent.
  std::vector<int64_t> integers(const std::string& key, int64_t min, int64_t max) const;
  // Reads a list of finite numbers within [min, max], which is empty when the key is absent.
  std::vector<double> numbers(const std::string& key, double min, double max) const;
  // Reads a list of strings, which is empty when the key is absent.
  std::vector<std::string> texts(const std::string& key) const;
  // Returns the names of the keys that are not null, in order.
  std::vector<std::string> keys() const;
  // Returns the object under `key`, or nothing when the key is absent.
  std::optional<JsonReader> object(const std::string& key) const;

  // Returns whether a getter has looked for the key, in this object or in a copy of it.
  bool was_read(const std::string& key) const { return read_->contains(key); }

  // Makes an error about `key` of this object, which the caller completes and throws.
  Error problem(const std::string& key, const std::string& what) const;
  const std::string& file() const { return file_; }

 private:
  JsonReader(std::string file, std::string prefix, std::shared_ptr<const nlohmann::json> object);
  const nlohmann::json* find(const std::string& key) const;
  const nlohmann::json& require(const std::string& key) const;
  int64_t to_integer(const nlohmann::json& value, const std::string& key, int64_t min, int64_t max) const;

  std::string file_, prefix_;
  std::shared_ptr<const nlohmann::json> object_;
  std::shared_ptr<std::set<std::string>> read_ = std::make_shared<std::set<std::string>>();
};

}  // namespace tessera::io
