// How a process finds its rank.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "tessera/comm/communicator.h"

namespace tessera::comm {

// The number of ranks and this process's rank as the launcher's environment gives them (mpirun, srun),
// without any MPI call; {0, 1} without a launcher.
struct LaunchInfo {
  int64_t rank = 0;
  int64_t size = 1;
  int64_t local_rank = 0;  // among the ranks of this machine
  int64_t local_size = 1;
  bool has_launcher = false;
};
LaunchInfo launch_info();

// The tasks on machine number `node` in Slurm's notation: of "4(x2),3", 4 on the machines 0 and 1, 3 on
// machine 2. -1 when the text is none or does not tell.
int64_t slurm_tasks_of_node(const std::string& text, int64_t node);

// Initialises MPI for the life of this object, when a launcher started several ranks; otherwise makes no
// MPI call at all. Several ranks on devices exchange their tensors by NCCL, which starts over MPI. One object
// a process. Throws Error(Peer) when MPI or NCCL does not start, as where two ranks have one device, and
// E-CONFIG-NCCL where there is none.
class Bootstrap {
 public:
  // Makes the device this thread's current one. `start_timeout_s` bounds how long ranks wait for each other
  // to start (0: the launcher does): then this process says E-PEER-START and ends with its exit code, as
  // MPI's start cannot be left in another way. With `shared_path`, a path on a file system that all ranks
  // share (start_roll.h), it names those that are missing.
  explicit Bootstrap(at::Device device = kHost, double start_timeout_s = 0.0,
                     const std::string& shared_path = "");
  // Finalises MPI, which waits for all ranks. When an exception is what ends its scope, MPI stays as it is:
  // the handler must end the job by abort().
  ~Bootstrap();
  Bootstrap(const Bootstrap&) = delete;
  Bootstrap& operator=(const Bootstrap&) = delete;

  // All ranks.
  const std::shared_ptr<Communicator>& world() const { return world_; }

  // Ends every rank of the job with this exit code; for errors that the other ranks do not know of.
  [[noreturn]] static void abort(int exit_code);

 private:
  std::shared_ptr<Communicator> world_;
  bool has_mpi_ = false;
};

}  // namespace tessera::comm
