#include "tessera/core/version.h"

namespace tessera {

const char* program_version() { return TESSERA_VERSION; }

}  // namespace tessera
