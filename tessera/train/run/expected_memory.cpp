#include "tessera/train/run/expected_memory.h"

#include <algorithm>
#include <exception>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "tessera/comm/bootstrap.h"
#include "tessera/core/error.h"
#include "tessera/core/log.h"
#include "tessera/core/process_stats.h"
#include "tessera/core/strings.h"
#include "tessera/device/device.h"
#include "tessera/device/device_memory.h"
#include "tessera/train/run/estimate.h"

namespace tessera::train {
namespace {

// The memory that a run needs.
struct Need {
  RankMemory worst;           // the rank that needs most
  int64_t mean_bytes = 0;     // of a rank at its peak
  int64_t lasting_bytes = 0;  // of a rank, of weights and states, on average

  int64_t bytes(bool is_lasting) const { return is_lasting ? lasting_bytes : mean_bytes; }
};

Need need_of(const config::Recipe& recipe, int64_t num_ranks) {
  Need need;
  const std::vector<int64_t> ranks = ranks_to_estimate(recipe, num_ranks);
  for (const int64_t rank : ranks) {
    const RankMemory memory = estimate_memory(recipe, num_ranks, rank);
    need.mean_bytes += memory.peak.total() / std::ssize(ranks);
    need.lasting_bytes +=
        (memory.most.of(MemoryCategory::Parameters) + memory.most.of(MemoryCategory::OptimizerState)) /
        std::ssize(ranks);
    if (rank == 0 || memory.peak.total() > need.worst.peak.total()) need.worst = memory;
  }
  return need;
}

// The memory in which the tensors of this machine's ranks lie.
struct Room {
  int64_t bytes = 0;      // for tensors; 0 if it is not known
  int64_t num_ranks = 1;  // that share it
  const char* name = "";

  static Room of(comm::Communicator& world) {
    const int64_t on_device = device_room(world.device()).total_bytes;
    if (world.device().type() != kHost) return {on_device, 1, "its GPU"};
    const int64_t ranks = comm::launch_info().local_size;
    return {usable_memory_bytes() - ranks * current_rss_bytes(), ranks, "this machine"};
  }
  // Estimates are within 5 %, so that is left to a run that might just fit.
  bool fits(int64_t bytes_of_rank) const {
    return bytes == 0 || static_cast<double>(bytes_of_rank * num_ranks) <= 1.05 * static_cast<double>(bytes);
  }
};

struct Change {
  std::string text;
  std::function<bool(config::Recipe&)> make;  // returns whether it changes anything
};

// Returns changes that save memory, the smaller ones first.
std::vector<Change> changes(int64_t num_ranks) {
  using config::Recipe;
  const auto is_full = [](const Recipe& r) { return r.adapter == config::AdapterKind::None; };
  const auto is_adamw = [](const Recipe& r) { return r.optimizer == OptimizerKind::AdamW; };
  return {
      {"gradient_checkpointing: true",
       [](Recipe& r) {
         return std::exchange(r.gradient_checkpointing, config::Checkpointing::Block) !=
                config::Checkpointing::Block;
       }},
      {"micro_batch_size: 1, with more gradient_accumulation_steps",
       [](Recipe& r) {
         r.gradient_accumulation_steps *= r.micro_batch_size;
         return std::exchange(r.micro_batch_size, 1) > 1;
       }},
      {"zero_stage: 3",
       [num_ranks](Recipe& r) {
         return num_ranks > 1 &&
                std::exchange(r.zero_stage, config::ZeroStage::Zero3) != config::ZeroStage::Zero3;
       }},
      {"bf16: true",
       [](Recipe& r) {
         if (r.dtype != config::ComputeType::Float32) return false;
         r.dtype = config::ComputeType::BFloat16;
         return true;
       }},
      {"optimizer: adamw_8bit",
       [=](Recipe& r) {
         if (!is_adamw(r) || !is_full(r)) return false;
         r.optimizer = OptimizerKind::AdamW8bit;
         return true;
       }},
      {"pure_bf16: true",
       [](Recipe& r) {
         r.dtype = config::ComputeType::BFloat16;
         return !std::exchange(r.pure_bf16, true);
       }},
      {"load_in_4bit: true", [=](Recipe& r) { return !is_full(r) && !std::exchange(r.load_in_4bit, true); }},
      {"adapter: qlora, with lora_target_linear: true",
       [=](Recipe& r) {
         if (!is_full(r)) return false;
         r.adapter = config::AdapterKind::Lora;
         return r.load_in_4bit = r.lora_target_linear = true;
       }},
  };
}

// Returns the first change that makes the run fit, or else the first of them that do so together.
std::string hint_for(const config::Recipe& recipe, int64_t num_ranks, const Room& room, bool is_lasting) {
  const auto fits = [&](const config::Recipe& changed) {
    try {
      return room.fits(need_of(changed, num_ranks).bytes(is_lasting));
    } catch (const std::exception&) {
      return false;  // the change does not suit the model or the other keys
    }
  };
  config::Recipe all = recipe;
  std::vector<std::string> made;
  for (const Change& change : changes(num_ranks)) {
    config::Recipe one = recipe;
    if (!change.make(one)) continue;
    if (fits(one)) return "it would fit with " + change.text;
    if (change.text.starts_with("adapter")) continue;
    static_cast<void>(change.make(all));
    made.push_back(change.text);
    if (fits(all)) return "it would fit with " + join(made, ", ");
  }
  return "more ranks (tensor_parallel_size, pipeline_parallel_size, or dp_shard_size with zero_stage: 3) "
         "hold "
         "less each";
}

struct Verdict {
  int64_t peak_bytes = 0;
  std::string text, problem, need, hint;
  bool is_refused = false;
};

Verdict judge(const config::Recipe& recipe, comm::Communicator& world) {
  const Need need = need_of(recipe, world.size());
  const bool is_host = world.device().type() == kHost;
  const Room room = Room::of(world);
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
  verdict.is_refused = !lasts;
  verdict.problem = lasts ? "the run may need more memory than " + std::string(room.name) + " has"
                          : "the weights and optimizer states do not fit " + std::string(room.name);
  verdict.need = format_bytes(room.num_ranks * need.bytes(!lasts)) + " for " +
                 std::to_string(room.num_ranks) + (room.num_ranks == 1 ? " rank" : " ranks") + ", of " +
                 format_bytes(room.bytes);
  verdict.hint = hint_for(recipe, world.size(), room, !lasts);
  return verdict;
}

}  // namespace

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
