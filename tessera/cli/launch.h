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
// goes on. What the launcher says itself is shown only within an error, or with TESSERA_LAUNCHER_OUTPUT=1.
// Throws Error(Config) when the machine lacks what ranks need (launch_checks.h), when there is no mpirun,
// when it cannot start the ranks, or when a launcher started another number of ranks; Error(Peer) with its
// number when a rank ended without a word of its own; Error(Hang) when ranks do not start.
std::optional<int> relaunch(int64_t nproc, const std::vector<std::string>& arguments);

// In a program that was unpacked from a package, which brings its own MPI: tells MPI where that lies. Call it
// before any MPI call and relaunch().
void use_packaged_mpi();

// The arguments without "--nproc N" and "--nproc=N".
std::vector<std::string> without_nproc(const std::vector<std::string>& arguments);

}  // namespace tessera::cli
