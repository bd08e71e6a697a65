// `--nproc N`: the program starts itself N times.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tessera::cli {

// Replaces this process by mpirun with `nproc` ranks of this program on this machine, with the same arguments
// less --nproc. Returns only by throwing Error(Config) when there is no mpirun. Under a launcher, or for one
// rank, it does nothing: the caller goes on.
void relaunch(int64_t nproc, const std::vector<std::string>& arguments);

// The arguments without "--nproc N" and "--nproc=N".
std::vector<std::string> without_nproc(const std::vector<std::string>& arguments);

}  // namespace tessera::cli
