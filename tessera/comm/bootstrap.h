// How a process finds its rank.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "tessera/comm/communicator.h"

namespace tessera::comm {

// This process's rank and the number of ranks, read from the variables that the launcher sets (mpirun, srun),
// without any MPI call; rank 0 of 1 if there is no launcher.
struct LaunchInfo {
  int64_t rank = 0;
  int64_t size = 1;
  int64_t local_rank = 0;  // among the ranks of this machine
  int64_t local_size = 1;
  bool has_launcher = false;
};
LaunchInfo launch_info();

// Gives the number of tasks on machine number `node`, from `text` in Slurm's notation: "4(x2),3" means 4
// tasks each on machines 0 and 1, and 3 on machine 2. Gives -1 if the text is not in this notation or does
// not reach that machine.
int64_t slurm_tasks_of_node(const std::string& text, int64_t node);

// Initialises MPI for the life of this object, when a launcher started several ranks; otherwise makes no MPI
// call at all. Several ranks on devices exchange their tensors by NCCL, which starts over MPI. A process
// makes at most one such object. Throws Error(Peer) if MPI or NCCL does not start (NCCL does not if two ranks
// share a device), and E-CONFIG-NCCL if no usable NCCL is found.
class Bootstrap {
 public:
  // Makes `device` this thread's current one. A process with a launcher's rank may make one such object in
  // its life, since MPI starts once: a second throws Error(Config, "BOOTSTRAP"). `start_timeout_s` bounds how
  // long ranks wait for each other to start; 0 sets no bound here (the launcher may have one). After that
  // time this process logs E-PEER-START and ends with that error's exit code, because MPI_Init_thread()
  // cannot be left in another way. The error names the missing ranks if `shared_path` is a path on a file
  // system that all ranks share (start_roll.h).
  explicit Bootstrap(at::Device device = kHost, double start_timeout_s = 0.0,
                     const std::string& shared_path = "");
  // Finalises MPI, which waits for all ranks. If an exception ends the scope of this object, MPI is not
  // finalised: the exception's handler must end the job by abort().
  ~Bootstrap();
  Bootstrap(const Bootstrap&) = delete;
  Bootstrap& operator=(const Bootstrap&) = delete;

  // The group of all ranks.
  const std::shared_ptr<Communicator>& world() const { return world_; }

  // Ends every rank of the job with this exit code; for errors that the other ranks do not know of.
  [[noreturn]] static void abort(int exit_code);

 private:
  std::shared_ptr<Communicator> world_;
  bool has_mpi_ = false;
};

}  // namespace tessera::comm
