// The MPI transport. The only code besides bootstrap that sees mpi.h.
#pragma once

#include <memory>

#include "tessera/comm/backend.h"

namespace tessera::comm::detail {

// Wraps a duplicate of MPI_COMM_WORLD. MPI must be initialised.
std::unique_ptr<Backend> make_mpi_world_backend();

}  // namespace tessera::comm::detail
