#include "tessera/config/rules.h"

#include <algorithm>
#include <utility>

#include "tessera/config/node.h"

namespace tessera::config {

Error Rules::error(std::string_view name, std::string what, const std::string& key) const {
  return recipe_.error(name, std::move(what), {key});
}

void Rules::refuse(const std::vector<std::string>& keys, const Error& error) {
  const auto has_problem = [&](const std::string& key) { return problems_.has(key); };
  if (std::none_of(keys.begin(), keys.end(), has_problem))
    problems_.add(keys.front(), recipe_.place_of({keys.front()}), error);
}

void Rules::warn(const std::string& key, const std::string& text) {
  problems_.warn(place_text(recipe_.place_of({key})) + ": " + text);
}

}  // namespace tessera::config
