// Which MPI this program runs with.
#pragma once

#include <string>

namespace tessera::comm {

// One line of MPI_Get_library_version(). Does not initialise MPI.
std::string mpi_library_version();

}  // namespace tessera::comm
