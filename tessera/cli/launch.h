// `--nproc N`: the program starts itself N times.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tessera::cli {

// How a job ended.
struct JobEnd {
  int exit_code = 0;       // of the rank that failed first
  bool was_asked = false;  // a signal to this process, or a request to a rank, ended it
};

// Runs `nproc` ranks of this program on this machine, several through mpirun, with these arguments less those
// of the launch itself. Signals sent to this process are passed on to the ranks, which end with it. What the
// launcher says itself is shown only within an error, or with TESSERA_LAUNCHER_OUTPUT=1.
// Throws Error(Config) when the machine lacks what ranks need (launch_checks.h), when there is no mpirun or
// when it cannot start the ranks; Error(Peer) with its number when a rank ended without a word of its own,
// and when ranks do not start.
JobEnd launch(int64_t nproc, const std::vector<std::string>& arguments);

// How long so many ranks may take to start; and what comm::Bootstrap is to bound, which is nothing where the
// process that started the ranks does.
double start_timeout_s(int64_t num_ranks);
double own_start_timeout_s();

// Whether a launcher started this process as one of several ranks, or of one. Throws Error(Config) where that
// was another number than an `nproc` above 1.
bool is_under_launcher(int64_t nproc);

// launch(), for several ranks and where no launcher started this process: the exit code. Otherwise the caller
// goes on.
std::optional<int> relaunch(int64_t nproc, const std::vector<std::string>& arguments);

// In a program that was unpacked from a package, which brings its own MPI: tells MPI where that lies. Call it
// before any MPI call and relaunch().
void use_packaged_mpi();

// The arguments without "--nproc N", "--max-restarts K", and the same with '='.
std::vector<std::string> without_launch_options(const std::vector<std::string>& arguments);

}  // namespace tessera::cli
