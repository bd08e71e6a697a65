#include "tessera/train/run/memory_need.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "tessera/comm/bootstrap.h"
#include "tessera/config/scalar.h"
#include "tessera/core/process_stats.h"
#include "tessera/core/strings.h"
#include "tessera/device/device.h"
#include "tessera/device/device_memory.h"
#include "tessera/io/file.h"

namespace tessera::train {
namespace {

bool is_full(const config::Recipe& recipe) { return recipe.adapter == config::AdapterKind::None; }

// Puts optimizer states on the drive of the results, where the recipe names no other.
bool spill_states(config::Recipe& recipe) {
  if (recipe.optimizer == OptimizerKind::Sgd || recipe.offload_param_device != config::OffloadDevice::None)
    return false;
  if (recipe.offload_optimizer_nvme_path.empty())
    recipe.offload_optimizer_nvme_path = io::parent_path(recipe.output_dir);
  return std::exchange(recipe.offload_optimizer_device, config::OffloadDevice::Nvme) !=
         config::OffloadDevice::Nvme;
}

// Updates in the backward, where nothing needs all gradients at once (config's validate_backward_updates()).
bool update_early(config::Recipe& recipe) {
  const bool is_possible =
      recipe.max_grad_norm == 0.0 && recipe.gradient_accumulation_steps == 1 &&
      recipe.gradient_noise_steps == 0 && recipe.pipeline_parallel_size == 1 &&
      recipe.dtype != config::ComputeType::Float16 && recipe.spike_action != config::SpikeAction::Skip &&
      recipe.spike_action != config::SpikeAction::Rollback && recipe.loss_watchdog_threshold == 0.0;
  return is_possible && !std::exchange(recipe.update_in_backward, true);
}

// Makes micro-batches of one row. Their sums would round otherwise where gradients are in bfloat16.
bool split_micro_batch(config::Recipe& recipe) {
  if (recipe.micro_batch_size == 1 || recipe.update_in_backward || recipe.pure_bf16) return false;
  recipe.gradient_accumulation_steps *= std::exchange(recipe.micro_batch_size, 1);
  return true;
}

bool recompute_more(config::Recipe& recipe, config::Checkpointing how) {
  if (static_cast<int>(recipe.gradient_checkpointing) >= static_cast<int>(how)) return false;
  recipe.gradient_checkpointing = how;
  return true;
}

}  // namespace

MemoryNeed memory_need(const config::Recipe& recipe, int64_t num_ranks) {
  MemoryNeed need;
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

MemoryRoom MemoryRoom::of(const config::Recipe& recipe, comm::Communicator& world) {
  const int64_t on_device = device_room(world.device()).total_bytes;
  if (world.device().type() != kHost) return {on_device, 1, "its GPU"};
  const int64_t ranks = comm::launch_info().local_size;
  const int64_t programs = ranks * current_rss_bytes();
  const int64_t limit = config::parse_bytes(recipe.host_memory_limit).value_or(0);
  if (limit == 0 || limit > usable_memory_bytes())
    return {usable_memory_bytes() - programs, ranks, "this machine"};
  return {std::max<int64_t>(1, limit - programs), ranks, "host_memory_limit", 0.95};
}

std::vector<MemoryChange> memory_changes(int64_t num_ranks) {
  using config::Checkpointing;
  using config::Recipe;
  return {
      {"gradient_checkpointing: mlp", [](Recipe& r) { return recompute_more(r, Checkpointing::Mlp); }, true},
      {"gradient_checkpointing: true", [](Recipe& r) { return recompute_more(r, Checkpointing::Block); },
       true},
      {"micro_batch_size: 1, with more gradient_accumulation_steps", split_micro_batch, true},
      {"update_in_backward: true", update_early, true},
      {"offload_optimizer_device: nvme", spill_states, true},
      {"zero_stage: 3",
       [num_ranks](Recipe& r) {
         return num_ranks > 1 &&
                std::exchange(r.zero_stage, config::ZeroStage::Zero3) != config::ZeroStage::Zero3;
       },
       true},
      {"bf16: true",
       [](Recipe& r) {
         if (r.dtype != config::ComputeType::Float32) return false;
         r.dtype = config::ComputeType::BFloat16;
         return true;
       }},
      {"optimizer: adamw_8bit",
       [](Recipe& r) {
         if (r.optimizer != OptimizerKind::AdamW || !is_full(r)) return false;
         r.optimizer = OptimizerKind::AdamW8bit;
         return true;
       }},
      {"pure_bf16: true",
       [](Recipe& r) {
         r.dtype = config::ComputeType::BFloat16;
         return !std::exchange(r.pure_bf16, true);
       }},
      {"load_in_4bit: true", [](Recipe& r) { return !is_full(r) && !std::exchange(r.load_in_4bit, true); }},
      {"adapter: qlora, with lora_target_linear: true",
       [](Recipe& r) {
         if (!is_full(r)) return false;
         r.adapter = config::AdapterKind::Lora;
         return r.load_in_4bit = r.lora_target_linear = true;
       }},
  };
}

std::optional<FittingRecipe> make_fit(const config::Recipe& recipe, const std::vector<MemoryChange>& changes,
                                      const MemoryRoom& room, int64_t world_size, bool is_lasting) {
  const auto fits = [&](const config::Recipe& changed) {
    try {
      const MemoryNeed need = memory_need(changed, world_size);
      return room.fits(is_lasting ? need.lasting_bytes : need.mean_bytes);
    } catch (const std::exception&) {
      return false;  // the change does not suit the model or the other keys
    }
  };
  config::Recipe all = recipe;
  std::vector<std::string> made;
  for (const MemoryChange& change : changes) {
    config::Recipe one = recipe;
    if (change.make(one) && fits(one)) return FittingRecipe{one, change.text};
    if (change.text.starts_with("adapter") || !change.make(all)) continue;
    // The stronger form of a change takes the place of the weaker one.
    if (!made.empty() && made.back().starts_with(change.text.substr(0, change.text.find(':'))))
      made.pop_back();
    made.push_back(change.text);
    if (fits(all)) return FittingRecipe{all, join(made, ", ")};
  }
  return std::nullopt;
}

}  // namespace tessera::train
