// Values of JSON that another program has written, which may be of any type.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace tessera::io {

// Returns the whole number that a value of nlohmann's library is; nothing for another type, and for a number
// that int64_t cannot hold, which get<int64_t>() would turn into a negative one.
template <class Json>
std::optional<int64_t> integer_of(const Json& value) {
  const bool is_too_large =
      value.is_number_unsigned() && value.template get<uint64_t>() > static_cast<uint64_t>(INT64_MAX);
  if (!value.is_number_integer() || is_too_large) return std::nullopt;
  return value.template get<int64_t>();
}

// Returns the text that an object of nlohmann's library has under a key; "" if there is none, or another
// value, or no object.
template <class Json>
std::string text_at(const Json& object, const std::string& key) {
  const auto found = object.is_object() ? object.find(key) : object.end();
  return found != object.end() && found->is_string() ? found->template get<std::string>() : "";
}

}  // namespace tessera::io
