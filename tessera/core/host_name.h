// The machine that this process runs on.
#pragma once

#include <string>

namespace tessera {

// As it names itself; "?" where the system does not tell.
std::string host_name();

}  // namespace tessera
