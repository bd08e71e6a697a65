#include "tessera/cli/launch.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "tessera/comm/bootstrap.h"
#include "tessera/core/error.h"
#include "tessera/core/process_stats.h"

namespace tessera::cli {

std::vector<std::string> without_nproc(const std::vector<std::string>& arguments) {
  std::vector<std::string> kept;
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i] == "--nproc") {
      ++i;
    } else if (arguments[i].rfind("--nproc=", 0) != 0) {
      kept.push_back(arguments[i]);
    }
  }
  return kept;
}

void relaunch(int64_t nproc, const std::vector<std::string>& arguments) {
  if (nproc <= 1 || comm::launch_info().has_launcher) return;
  char self[4096];
  const ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
  TESSERA_ASSERT(length > 0, "cannot find this program's own file");
  self[length] = '\0';

  setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 0);
  setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 0);
  // A waiting rank lets another one run on its core.
  setenv("OMPI_MCA_mpi_yield_when_idle", "1", 0);
  // Copies between processes may be forbidden (containers); shared memory always works.
  setenv("OMPI_MCA_btl_vader_single_copy_mechanism", "none", 0);
  const int64_t threads = std::max<int64_t>(1, usable_cores() / nproc);
  setenv("OMP_NUM_THREADS", std::to_string(threads).c_str(), 0);

  std::vector<std::string> command = {"mpirun", "--quiet", "--oversubscribe", "--bind-to", "none",
                                      "-n",     std::to_string(nproc), self};
  for (const std::string& argument : without_nproc(arguments)) command.push_back(argument);
  std::vector<char*> pointers;
  for (std::string& word : command) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  execvp("mpirun", pointers.data());
  throw Error(ErrorKind::Config, "LAUNCHER", std::string("cannot start mpirun: ") + std::strerror(errno))
      .need("OpenMPI for --nproc " + std::to_string(nproc))
      .hint("install openmpi-bin, or start the ranks by your cluster's own launcher");
}

}  // namespace tessera::cli
