// The whole numbers of JSON, which may be larger than int64_t.
#pragma once

#include <cstdint>
#include <optional>

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

}  // namespace tessera::io
