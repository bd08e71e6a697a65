#include "tessera/serving/api_keys.h"

#include <algorithm>
#include <sstream>

#include "tessera/core/error.h"
#include "tessera/core/strings.h"
#include "tessera/io/file.h"

namespace tessera::serving {
namespace {

constexpr int64_t kMaxFile = int64_t{1} << 20;

// Compares in a time that depends on the length of `given` alone.
bool is_equal(std::string_view given, const std::string& key) {
  volatile unsigned difference = given.size() == key.size() ? 0 : 1;
  for (size_t i = 0; i < given.size(); ++i) {
    const auto a = static_cast<unsigned char>(given[i]), b = static_cast<unsigned char>(key[i % key.size()]);
    difference = difference | (a ^ b);
  }
  return difference == 0;
}

}  // namespace

ApiKeys ApiKeys::from_file(const std::string& path) {
  std::vector<std::string> keys;
  std::istringstream lines(io::read_file(path, kMaxFile));
  for (std::string line; std::getline(lines, line);) {
    const size_t begin = line.find_first_not_of(" \t\r");
    if (begin == std::string::npos || line[begin] == '#') continue;
    keys.push_back(line.substr(begin, line.find_last_not_of(" \t\r") + 1 - begin));
  }
  if (keys.empty())
    throw Error(ErrorKind::Config, "API-KEYS", "the file has no key").in(path).need("one key on each line");
  return ApiKeys(std::move(keys));
}

bool ApiKeys::allow(std::string_view authorization, std::string_view api_key) const {
  if (keys_.empty()) return true;
  constexpr std::string_view kBearer = "bearer ";
  std::string_view given = api_key;
  if (authorization.size() >= kBearer.size() && lower(authorization.substr(0, kBearer.size())) == kBearer)
    given = authorization.substr(kBearer.size());
  bool is_known = false;
  for (const std::string& key : keys_) is_known = is_equal(given, key) | is_known;
  return is_known;
}

}  // namespace tessera::serving
