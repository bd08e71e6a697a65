#include "tessera/train/run/expected_memory.h"

#include <exception>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "tessera/core/error.h"
#include "tessera/core/log.h"
#include "tessera/core/process_stats.h"
#include "tessera/core/strings.h"
#include "tessera/device/device.h"
#include "tessera/train/run/memory_need.h"

namespace tessera::train {
namespace {

// Returns whether the recipe itself says how much memory there is.
bool is_bound(const config::Recipe& recipe) { return !recipe.host_memory_limit.empty(); }

// Returns what would make the run fit.
std::string hint_for(const config::Recipe& recipe, int64_t num_ranks, const MemoryRoom& room,
                     bool is_lasting) {
  const auto fitting = make_fit(recipe, memory_changes(num_ranks), room, num_ranks, is_lasting);
  if (fitting) return "it would fit with " + fitting->changes;
  return "more ranks (tensor_parallel_size, pipeline_parallel_size, or dp_shard_size with zero_stage: 3) "
         "hold less each";
}

struct Verdict {
  int64_t peak_bytes = 0;
  std::string text, problem, need, hint;
  bool is_refused = false;
};

Verdict judge(const config::Recipe& recipe, comm::Communicator& world) {
  const MemoryNeed need = memory_need(recipe, world.size());
  const bool is_host = world.device().type() == kHost;
  const MemoryRoom room = MemoryRoom::of(recipe, world);
  Verdict verdict;
  verdict.peak_bytes = need.worst.peak.total() + (is_host ? current_rss_bytes() : 0);
  const auto part = [&](MemoryCategory category) { return format_bytes(need.worst.peak.of(category)); };
  verdict.text = "memory: " + format_bytes(verdict.peak_bytes) +
                 " of a rank at the peak when micro-batches are full (" + part(MemoryCategory::Parameters) +
                 " weights, " + part(MemoryCategory::OptimizerState) + " optimizer states, " +
                 part(MemoryCategory::Gradients) + " gradients, " + part(MemoryCategory::Activations) +
                 " activations)";
  const bool lasts = room.fits(need.lasting_bytes);
  if (lasts && room.fits(need.mean_bytes)) return verdict;
  verdict.is_refused = !lasts || is_bound(recipe);
  verdict.problem = !lasts             ? "the weights and optimizer states do not fit " + room.name
                    : is_bound(recipe) ? "the run does not fit " + room.name
                                       : "the run may need more memory than " + room.name + " has";
  verdict.need = format_bytes(room.num_ranks * (lasts ? need.mean_bytes : need.lasting_bytes)) + " for " +
                 std::to_string(room.num_ranks) + (room.num_ranks == 1 ? " rank" : " ranks") + ", of " +
                 format_bytes(room.bytes);
  verdict.hint = hint_for(recipe, world.size(), room, !lasts);
  return verdict;
}

}  // namespace

config::Recipe within_host_memory(config::Recipe recipe, comm::Communicator& world) {
  if (!is_bound(recipe)) return recipe;
  if (world.device().type() != kHost) {
    throw recipe
        .error("MEMORY-LIMIT", "host_memory_limit plans runs that compute on the CPU", {"host_memory_limit"})
        .hint("offload_optimizer_device and offload_param_device say what a GPU leaves on the host");
  }
  // Changes are told by their number, since rank 0 chooses for all of them.
  std::vector<MemoryChange> changes = memory_changes(world.size());
  std::erase_if(changes, [](const MemoryChange& change) { return !change.keeps_numbers; });
  std::string own;
  if (world.rank() == 0) {
    const log::Silence silence;
    try {
      const MemoryRoom room = MemoryRoom::of(recipe, world);
      if (!room.fits(memory_need(recipe, world.size()).mean_bytes)) {
        const auto fitting = make_fit(recipe, changes, room, world.size(), /*is_lasting=*/false);
        if (fitting) own = fitting->changes;
      }
    } catch (const std::exception&) {
      own.clear();  // the run itself will plan the model and report the error
    }
  }
  own = world.all_gather_string(own).front();
  if (own.empty()) return recipe;
  for (const MemoryChange& change : changes) {
    if ((", " + own + ",").find(", " + change.text + ",") != std::string::npos) change.make(recipe);
  }
  log::info("host_memory_limit: " + recipe.host_memory_limit + " is kept by " + own);
  return recipe;
}

std::optional<int64_t> expect_memory(const config::Recipe& recipe, comm::Communicator& world) {
  // Rank 0 estimates for all of them.
  std::string own;
  if (world.rank() == 0) {
    const log::Silence silence;  // the model is planned once more, and has said what there is to say
    try {
      const Verdict v = judge(recipe, world);
      own = nlohmann::json({v.peak_bytes, v.text, v.problem, v.need, v.hint, v.is_refused}).dump();
    } catch (const std::exception&) {
      own.clear();  // a run that only its own steps can measure
    }
  }
  const std::string text = world.all_gather_string(own).front();
  if (text.empty()) return std::nullopt;
  const auto json = nlohmann::json::parse(text);
  const Verdict v = {json[0], json[1], json[2], json[3], json[4], json[5]};
  log::info(v.text);
  if (v.problem.empty()) return v.peak_bytes;
  if (v.is_refused) throw Error(ErrorKind::Memory, "CANNOT-FIT", v.problem).got(v.need).hint(v.hint);
  log::warn(v.problem + ": " + v.need + "; " + v.hint);
  return v.peak_bytes;
}

}  // namespace tessera::train
