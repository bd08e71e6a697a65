#include "tessera/comm/bootstrap.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include <unistd.h>

#include "tessera/comm/flight_recorder.h"
#include "tessera/comm/host/host_backend.h"
#include "tessera/comm/mpi/launcher_release.h"
#include "tessera/comm/mpi/mpi_check.h"
#include "tessera/comm/mpi/mpi_transport.h"
#include "tessera/comm/nccl/nccl_backend.h"
#include "tessera/comm/start_roll.h"
#include "tessera/core/environment.h"
#include "tessera/core/error.h"
#include "tessera/core/log.h"
#include "tessera/device/device.h"

namespace tessera::comm {
namespace {

int64_t environment_int(const char* name, int64_t missing) {
  const auto text = environment::get(name);
  if (!text) return missing;
  char* end = nullptr;
  const long value = std::strtol(text->c_str(), &end, 10);
  return *end == '\0' ? value : missing;
}

// Ends the process, with E-PEER-START, unless this object is destroyed within `seconds`.
class StartBound {
 public:
  StartBound(const LaunchInfo& info, double seconds, const std::string& shared_path) {
    if (seconds <= 0.0) return;
    roll_.emplace(info, shared_path);
    thread_ = std::thread([this, info, seconds] {
      // The first of the waiting ranks speaks for all, since the job ends with it: each rank waits a little
      // longer than the one before it.
      constexpr double kBetweenRanks_s = 2.0, kMost_s = 60.0;
      const double all_s = seconds + std::min(kMost_s, kBetweenRanks_s * static_cast<double>(info.rank));
      std::unique_lock lock(mutex_);
      if (ended_.wait_for(lock, std::chrono::duration<double>(all_s), [this] { return has_ended_; })) return;
      const std::string known = roll_->text();
      const Error error =
          Error(ErrorKind::Peer, "START",
                "the ranks of the job cannot connect to each other" + (known.empty() ? "" : ": " + known))
              .got("rank " + std::to_string(info.rank) + " has waited for the others for " +
                   std::to_string(static_cast<int64_t>(seconds)) + " s")
              .need("all " + std::to_string(info.size) + " ranks to start")
              .hint(
                  "a rank may be stopped, or a machine may be down, slow, or behind a firewall; "
                  "TESSERA_START_TIMEOUT=SECONDS sets a longer timeout");
      log::error(error.what());
      roll_->clear();
      _exit(exit_code(ErrorKind::Peer));
    });
  }
  ~StartBound() {
    if (!thread_.joinable()) return;
    {
      const std::lock_guard lock(mutex_);
      has_ended_ = true;
      ended_.notify_all();
    }
    thread_.join();
  }
  StartBound(const StartBound&) = delete;
  StartBound& operator=(const StartBound&) = delete;

 private:
  std::mutex mutex_;
  std::condition_variable ended_;
  bool has_ended_ = false;
  std::optional<StartRoll> roll_;
  std::thread thread_;
};

}  // namespace

int64_t slurm_tasks_of_node(const std::string& text, int64_t node) {
  const char* at = text.c_str();
  for (int64_t first = 0; *at != '\0';) {
    char* end = nullptr;
    const long tasks = std::strtol(at, &end, 10);
    if (end == at || tasks < 1) return -1;
    long count = 1;
    if (end[0] == '(' && end[1] == 'x') {
      at = end + 2;
      count = std::strtol(at, &end, 10);
      if (end == at || count < 1 || *end != ')') return -1;
      ++end;
    }
    if (*end != ',' && *end != '\0') return -1;
    first += count;
    if (node < first) return tasks;
    at = *end == ',' ? end + 1 : end;
  }
  return -1;
}

LaunchInfo launch_info() {
  struct Launcher {
    const char *rank, *size, *local_rank, *local_size;
  };
  static constexpr Launcher kLaunchers[] = {
      {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
       "OMPI_COMM_WORLD_LOCAL_SIZE"},
      {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
      {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "SLURM_STEP_TASKS_PER_NODE"},
  };
  for (const Launcher& launcher : kLaunchers) {
    LaunchInfo info;
    info.rank = environment_int(launcher.rank, -1);
    info.size = environment_int(launcher.size, -1);
    if (info.rank < 0 || info.size < 1) continue;
    info.local_rank = environment_int(launcher.local_rank, info.rank);
    info.local_size = environment_int(launcher.local_size, -1);
    if (const auto tasks = environment::get(launcher.local_size); tasks && info.local_size < 0) {
      info.local_size = slurm_tasks_of_node(*tasks, environment_int("SLURM_NODEID", 0));
    }
    if (info.local_size < 1) info.local_size = info.size;
    info.has_launcher = true;
    return info;
  }
  return {};
}

Bootstrap::Bootstrap(at::Device device, double start_timeout_s, const std::string& shared_path) {
  const LaunchInfo info = launch_info();
  use_device(device);
  if (info.size == 1) {
    world_ = Communicator::single(device);
    return;
  }
  // NCCL is opened first: if it is missing, no rank waits for another one yet.
  std::shared_ptr<const detail::NcclLibrary> nccl;
  if (device.type() != kHost) nccl = detail::NcclLibrary::require();
  int is_initialised = 0;
  MPI_Initialized(&is_initialised);
  if (is_initialised != 0) {
    throw Error(ErrorKind::Config, "BOOTSTRAP", "MPI has been started already in this process")
        .need("one comm::Bootstrap in a process, which starts MPI and ends it")
        .hint("keep one object for the whole program, and pass its world() on");
  }
  int provided = 0;
  {
    const StartBound bound(info, start_timeout_s, shared_path);
    // Several threads call MPI at once: every group has a thread of its own, and the messages have one.
    detail::mpi_check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided), "MPI_Init_thread");
  }
  has_mpi_ = true;
  if (provided < MPI_THREAD_MULTIPLE) {
    throw Error(ErrorKind::Peer, "MPI-THREADS", "this MPI does not support calls from several threads")
        .need("MPI_THREAD_MULTIPLE")
        .hint("use an MPI that was built with support for threads");
  }
  int num_ranks = 0;
  detail::mpi_check(MPI_Comm_size(MPI_COMM_WORLD, &num_ranks), "MPI_Comm_size");
  if (num_ranks != info.size) {
    throw Error(ErrorKind::Peer, "WORLD-SIZE", "MPI and its launcher disagree on the number of ranks")
        .got(std::to_string(num_ranks))
        .need(std::to_string(info.size))
        .hint("was the program started by another MPI's mpirun?");
  }
  auto transport = detail::make_mpi_world_transport();
  flight::attach(*transport);
  auto host = std::make_unique<detail::HostBackend>(std::move(transport));
  std::unique_ptr<detail::TensorBackend> backend;
  if (nccl == nullptr) {
    backend = std::move(host);
  } else {
    backend = detail::make_nccl_backend(std::move(host), device, std::move(nccl));
  }
  world_ = std::make_shared<Communicator>(std::move(backend));
}

Bootstrap::~Bootstrap() {
  world_.reset();
  flight::detach();
  // MPI_Finalize() waits for all ranks. After an error of this rank alone it must not, since the others may
  // wait for this rank.
  if (has_mpi_ && std::uncaught_exceptions() == 0) MPI_Finalize();
}

void Bootstrap::abort(int exit_code) {
  int is_initialised = 0, is_finalised = 0;
  MPI_Initialized(&is_initialised);
  MPI_Finalized(&is_finalised);
  if (is_initialised != 0 && is_finalised == 0) {
    // After these errors a machine may be unreachable, and the launcher would wait for it.
    const bool may_be_cut_off =
        exit_code == tessera::exit_code(ErrorKind::Hang) || exit_code == tessera::exit_code(ErrorKind::Peer);
    if (may_be_cut_off && flight::spans_machines()) detail::release_launcher();
    MPI_Abort(MPI_COMM_WORLD, exit_code);
  }
  _exit(exit_code);
}

}  // namespace tessera::comm
