// The version of Tessera.
#pragma once

namespace tessera {

// The version as text, such as "0.1.0".
const char* program_version();

}  // namespace tessera
