// The MPI library that this program runs with.
#pragma once

#include <string>

namespace tessera::comm {

// Gives the text of MPI_Get_library_version() up to its first comma or line break. Does not initialise MPI.
std::string mpi_library_version();

}  // namespace tessera::comm
