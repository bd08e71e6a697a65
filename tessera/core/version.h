// Which Tessera this is.
#pragma once

namespace tessera {

// "0.1.0"
const char* program_version();

}  // namespace tessera
