// The machine that this process runs on.
#pragma once

#include <string>

namespace tessera {

// The name that the machine gives itself; "?" if the system does not tell.
std::string host_name();

}  // namespace tessera
