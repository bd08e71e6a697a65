#include "tessera/config/rules.h"

#include <algorithm>

#include "tessera/config/node.h"

namespace tessera::config {

Error& Rules::refuse_text(std::string_view name, const std::vector<std::string>& keys,
                          const std::string& text) {
  const std::string& key = keys.front();
  const Error error = recipe_.error(name, text, {key});
  const auto has_problem = [&](const std::string& other) { return problems_.has(other); };
  if (std::ranges::any_of(keys, has_problem)) return ignored_.emplace(error);
  return problems_.add(key, recipe_.place_of({key}), error);
}

void Rules::warn_at(const std::string& key, const std::string& behind_key) {
  problems_.warn(place_text(recipe_.place_of({key})) + ": key '" + key + "'" + behind_key);
}

}  // namespace tessera::config
