#include "tessera/config/recipe.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "tessera/config/entry_error.h"

namespace tessera::config {

std::string KeyPlaces::first_given(std::initializer_list<std::string_view> keys) const {
  const auto is_given = [&](std::string_view key) { return key_places.contains(std::string(key)); };
  return std::string(*std::find_if(keys.begin(), std::prev(keys.end()), is_given));
}

SourcePlace KeyPlaces::place_of(std::initializer_list<std::string_view> keys) const {
  const auto place = key_places.find(first_given(keys));
  if (place == key_places.end()) return {source_file};
  return place->second;
}

Error KeyPlaces::error(std::string_view name, std::string what,
                       std::initializer_list<std::string_view> keys) const {
  return Error(ErrorKind::Config, name, std::move(what)).at(place_of(keys));
}

Error key_error(const KeyPlaces& places, std::string_view name, const std::string& key,
                const std::string& what) {
  return places.error(name, "key '" + key + "': " + what, {key});
}

}  // namespace tessera::config
