#include "tessera/config/rules.h"

#include <algorithm>
#include <utility>

#include "tessera/config/node.h"

namespace tessera::config {

Error Rules::error(std::string_view name, std::string what, const std::string& key) const {
  const KeyPlace place = place_of(key);
  return Error(ErrorKind::Config, name, std::move(what)).at(place.file, place.line, place.column);
}

void Rules::refuse(const std::vector<std::string>& keys, const Error& error) {
  const auto has_problem = [&](const std::string& key) { return problems_.has(key); };
  if (std::none_of(keys.begin(), keys.end(), has_problem))
    problems_.add(keys.front(), place_of(keys.front()), error);
}

void Rules::warn(const std::string& key, const std::string& text) {
  problems_.warn(place_text(place_of(key)) + ": " + text);
}

KeyPlace Rules::place_of(const std::string& key) const {
  const auto it = recipe_.key_places.find(key);
  return it == recipe_.key_places.end() ? KeyPlace{recipe_.source_file} : it->second;
}

}  // namespace tessera::config
