#include "tessera/comm/rank_cores.h"

#include <fstream>
#include <optional>

#include <ATen/Parallel.h>

#include "tessera/core/core_set.h"
#include "tessera/core/environment.h"
#include "tessera/core/host_name.h"
#include "tessera/core/process_stats.h"

namespace tessera::comm {
namespace {

// Gives a text that no other machine of the job has: the host's name and the id of its boot.
std::string machine() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string boot;
  std::getline(file, boot);
  return host_name() + "/" + boot;
}

// Tells whether the user wants ranks bound to cores; nothing if the user does not say.
std::optional<bool> user_choice() {
  if (const auto choice = environment::get_flag("TESSERA_BIND")) return choice;
  for (const char* name : {"OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY"}) {
    if (environment::get(name)) return false;
  }
  return std::nullopt;
}

}  // namespace

void share_cores(Communicator& world) {
  if (world.size() == 1) return;
  const CoreSet own = usable_core_set();
  const std::string here = machine();
  std::vector<CoreSet> sets;
  size_t index = 0, first = 0;  // this rank among those of the machine, and the first of them
  const auto texts = world.all_gather_string(here + "\n" + to_string(own));
  for (size_t rank = 0; rank < texts.size(); ++rank) {
    const size_t line = texts[rank].find('\n');
    if (texts[rank].substr(0, line) != here) continue;
    if (sets.empty()) first = rank;
    if (rank == static_cast<size_t>(world.rank())) index = sets.size();
    sets.push_back(parse_core_set(texts[rank].substr(line + 1)));
  }
  const CoreShare share = share_of_cores(sets, index, by_topology(own));
  // Ranks look for other programs that compute on the machine. All look at the same time, since a rank that
  // already waited for the transport would itself be seen as running. The answer of the machine's first rank
  // counts.
  const bool is_crowded = running_threads_of_others() > kCrowd;
  const auto crowds = world.all_gather_string(is_crowded ? "crowded" : "");
  const bool finds_crowd = crowds[first] == "crowded";
  if (!share.cores.empty() && user_choice().value_or(!finds_crowd)) bind_process(share.cores);
  if (!environment::get("OMP_NUM_THREADS")) at::set_num_threads(static_cast<int>(share.threads));
}

}  // namespace tessera::comm
