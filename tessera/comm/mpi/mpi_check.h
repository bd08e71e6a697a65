// Turns MPI result codes into errors.
#pragma once

// Leaves out OpenMPI's C++ bindings, which the MPI standard has removed.
#define OMPI_SKIP_MPICXX 1
#include <string>

#include <mpi.h>

#include "tessera/core/error.h"

namespace tessera::comm::detail {

// Throws Error(Peer) that names the call and MPI's own text.
inline void mpi_check(int result, const char* call) {
  if (result == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  MPI_Error_string(result, text, &length);
  throw Error(ErrorKind::Peer, "MPI", std::string(call) + " failed: " + std::string(text, length));
}

#define TESSERA_MPI_CHECK(call) ::tessera::comm::detail::mpi_check((call), #call)

}  // namespace tessera::comm::detail
