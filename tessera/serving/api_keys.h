// The keys by which clients may use a server.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tessera::serving {

class ApiKeys {
 public:
  // Lets everybody use the server.
  ApiKeys() = default;
  explicit ApiKeys(std::vector<std::string> keys) : keys_(std::move(keys)) {}
  // Reads one key from each line of a file; empty lines, and those that begin with #, are left out. Throws
  // Error(Config, "API-KEYS") for a file without a key.
  static ApiKeys from_file(const std::string& path);

  bool is_empty() const { return keys_.empty(); }
  // Returns whether a request with this header Authorization ("Bearer KEY") or this header X-Api-Key may
  // pass. The time that it takes tells nothing about the keys but their number.
  bool allow(std::string_view authorization, std::string_view api_key) const;

 private:
  std::vector<std::string> keys_;
};

}  // namespace tessera::serving
