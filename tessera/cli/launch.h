// Implements `--nproc N`: the program starts itself N times.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tessera::cli {

// The end of a job.
struct JobEnd {
  int exit_code = 0;       // of the rank that failed first; 0 if none did
  bool was_asked = false;  // a signal to this process, or a request to a rank, ended it
};

// Runs `nproc` ranks of this program on this machine (through mpirun, if more than one) with `arguments` less
// those of the launch itself. Signals to this process are passed on to the ranks, which end when it ends. The
// launcher's own output is shown only within an error, or with TESSERA_LAUNCHER_OUTPUT=1.
// Throws Error(Config) when the machine lacks something that ranks need (launch_checks.h), when there is no
// mpirun or when it cannot start the ranks; Error(Peer) with its number when a rank ended without a word of
// its own, and when ranks do not start.
JobEnd launch(int64_t nproc, const std::vector<std::string>& arguments);

// Return how long `num_ranks` ranks may take to start; and the bound for comm::Bootstrap, which is 0 (none)
// if the process that started the ranks watches their start.
double start_timeout_s(int64_t num_ranks);
double own_start_timeout_s();

// Returns whether a launcher started this process as a rank, be it the only one. Throws Error(Config) if the
// launcher's number of ranks is not an `nproc` above 1.
bool is_under_launcher(int64_t nproc);

// Runs launch() and returns its exit code, if `nproc` is above 1 and no launcher started this process;
// otherwise returns nullopt, and the caller goes on.
std::optional<int> relaunch(int64_t nproc, const std::vector<std::string>& arguments);

// In a program that was unpacked from a package, which brings its own MPI, tells MPI where that lies. Must be
// called before any MPI call and before relaunch().
void use_packaged_mpi();

// Returns the arguments without "--nproc N" and "--max-restarts K", also in the form with '='.
std::vector<std::string> without_launch_options(const std::vector<std::string>& arguments);

}  // namespace tessera::cli
