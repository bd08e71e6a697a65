// The ranks of a machine share its cores.
#pragma once

#include <string>

#include "tessera/comm/communicator.h"

namespace tessera::comm {

// Gives every rank cores of its own where its launcher did not (see CoreShare), so that ranks and their
// threads do not take turns on one core while another is free, and sets the number of compute threads unless
// OMP_NUM_THREADS does. Binds nothing where the user bound OpenMP threads (OMP_PROC_BIND, OMP_PLACES,
// GOMP_CPU_AFFINITY), nor where others compute on the machine: a bound thread cannot leave a busy core.
// TESSERA_BIND=0 and 1 decide it. Call before the first computation. Collective over all ranks.
void share_cores(Communicator& world);

}  // namespace tessera::comm
