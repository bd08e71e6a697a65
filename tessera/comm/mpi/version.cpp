#include "tessera/comm/version.h"

#include "tessera/comm/mpi/mpi_check.h"

namespace tessera::comm {

std::string mpi_library_version() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING] = {};
  int length = 0;
  TESSERA_MPI_CHECK(MPI_Get_library_version(text, &length));
  std::string version(text, static_cast<size_t>(length));
  return version.substr(0, version.find_first_of(",\n"));
}

}  // namespace tessera::comm
