// Base64 (RFC 4648), in which JSON carries bytes.
#pragma once

#include <string>
#include <string_view>

namespace tessera {

// Writes the bytes in base64, with '=' at the end.
std::string base64(std::string_view bytes);

}  // namespace tessera
