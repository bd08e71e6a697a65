// The MPI transport.
#pragma once

#include <memory>

#include "tessera/comm/host/transport.h"

namespace tessera::comm::detail {

// Makes the transport of all ranks, over a duplicate of MPI_COMM_WORLD. Collective; MPI must be initialised.
std::unique_ptr<Transport> make_mpi_world_transport();

}  // namespace tessera::comm::detail
