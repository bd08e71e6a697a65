// Typed access to the small JSON objects that describe models and adapters, with errors that name the file
// and the key.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "tessera/core/error.h"

namespace tessera::io {

// That `file`, which makes a folder a model or an adapter, is not there: Error(Model, "NO-FILE"), which says
// what the folder is instead.
Error missing_file(const std::string& file);

// Reads one JSON object; keys that are null count as absent. Every problem is an Error(Model,
// "CONFIG") at "<file>: key '<path>'".
class JsonReader {
 public:
  // Reads and parses `file` (at most 1 MiB). The top value must be an object.
  static JsonReader open(const std::string& file);
  // The same of what was read from `file` before.
  static JsonReader parse(const std::string& text, const std::string& file);
  // The text of the small JSON file `file`. Throws Error(Model) for one that does not exist or is too large.
  static std::string read_text(const std::string& file);

  bool has(const std::string& key) const;
  bool is_text(const std::string& key) const;
  // Absent, or an empty list, object or string, or false.
  bool is_empty(const std::string& key) const;
  // Without a default the key is needed.
  int64_t integer(const std::string& key, int64_t min, int64_t max,
                  std::optional<int64_t> fallback = {}) const;
  // Finite, within [min, max].
  double number(const std::string& key, double min, double max, std::optional<double> fallback = {}) const;
  bool boolean(const std::string& key, bool fallback) const;
  std::string text(const std::string& key, std::optional<std::string> fallback = {}) const;
  std::optional<int64_t> optional_integer(const std::string& key, int64_t min, int64_t max) const;
  // An integer or a list of integers; empty when absent.
  std::vector<int64_t> integers(const std::string& key, int64_t min, int64_t max) const;
  // A list of strings; empty when absent.
  std::vector<std::string> texts(const std::string& key) const;
  // The object under `key`, or nothing when absent.
  std::optional<JsonReader> object(const std::string& key) const;

  // An error about `key` of this object, to be completed and thrown.
  Error problem(const std::string& key, const std::string& what) const;
  const std::string& file() const { return file_; }

 private:
  JsonReader(std::string file, std::string prefix, std::shared_ptr<const nlohmann::json> object);
  const nlohmann::json* find(const std::string& key) const;
  const nlohmann::json& require(const std::string& key) const;
  int64_t to_integer(const nlohmann::json& value, const std::string& key, int64_t min, int64_t max) const;

  std::string file_, prefix_;
  std::shared_ptr<const nlohmann::json> object_;
};

}  // namespace tessera::io
