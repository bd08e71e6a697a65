// Base64 (RFC 4648), in which JSON carries bytes.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace tessera {

// Writes the bytes in base64, with '=' at the end.
std::string base64(std::string_view bytes);
// Returns the bytes of a text in base64, or nothing if it is none. The '=' at the end may be missing.
std::optional<std::string> from_base64(std::string_view text);

}  // namespace tessera
