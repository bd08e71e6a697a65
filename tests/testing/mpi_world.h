// Gives the group of all ranks of a multi-rank test.
#pragma once

#include <memory>

#include "tessera/comm/communicator.h"

namespace tessera::testing {

std::shared_ptr<comm::Communicator> world();

}  // namespace tessera::testing
