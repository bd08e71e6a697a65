// `--nproc N`: the program starts itself N times.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tessera::cli {

// Runs `nproc` ranks of this program on this machine through mpirun, with the same arguments less --nproc,
// and gives the job's exit code: the one of the rank that failed. Signals sent to this process are passed on,
// and the ranks end with it. Under a launcher, or for one rank, it does nothing and gives none: the caller
// goes on. Throws Error(Config) when there is no mpirun or a launcher started another number of ranks,
// Error(Peer) when a signal ended a rank.
std::optional<int> relaunch(int64_t nproc, const std::vector<std::string>& arguments);

// The arguments without "--nproc N" and "--nproc=N".
std::vector<std::string> without_nproc(const std::vector<std::string>& arguments);

}  // namespace tessera::cli
