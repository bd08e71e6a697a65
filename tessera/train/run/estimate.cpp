#include "tessera/train/run/estimate.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include <ATen/ATen.h>

#include "tessera/checkpoint/parameter_source.h"
#include "tessera/comm/dry_backend.h"
#include "tessera/config/parallelism.h"
#include "tessera/config/problems.h"
#include "tessera/core/step_clock.h"
#include "tessera/device/memory_scope.h"
#include "tessera/device/meta_memory.h"
#include "tessera/train/run/bench_steps.h"
#include "tessera/train/setup/recipe_tokenizer.h"
#include "tessera/train/setup/recipe_values.h"
#include "tessera/train/setup/setup.h"
#include "tessera/train/step/backward_updates.h"
#include "tessera/train/step/forward_backward.h"
#include "tessera/train/step/step.h"
#include "tessera/train/step/training.h"

namespace tessera::train {
namespace {

// Gives parameters no values.
class NoValues : public checkpoint::ParameterSource {
 public:
  bool holds(const std::string&) const override { return true; }
  std::optional<DType> stored_dtype(const std::string&) const override { return std::nullopt; }
  void read(const std::string&, const parallel::Box&, const at::Tensor&) const override {}
};

// The ledger counts while one lives.
struct Counting {
  Counting() { memory_ledger::start(); }
  ~Counting() { memory_ledger::stop(); }
};

void follow_step(TrainedModel& trained, optim::Optimizer& optimizer, const parallel::DeviceMesh& mesh,
                 const config::Recipe& recipe, const data::Step& step) {
  trained.sharded->zero_grad();
  std::optional<BackwardUpdates> updates;
  if (recipe.update_in_backward) updates.emplace(trained, optimizer, recipe.learning_rate);
  const auto place_of = [&](int64_t m) -> nn::RandomPlace {
    const data::MicroBatch& batch = step.micro_batches[static_cast<size_t>(m)];
    return {.seed = static_cast<uint64_t>(recipe.seed),
            .step = 0,
            .sequence = static_cast<uint64_t>(batch.first_sequence),
            .sequence_starts = batch.sequence_starts};
  };
  forward_backward(trained, mesh, step.micro_batches, 1.0, place_of, {});
  if (updates) return;
  const optim::PendingNorm norm(*trained.sharded);
  const SectionScope section(StepSection::Optimizer);
  const MemoryScope memory(MemoryCategory::OptimizerState);
  optimizer.step(recipe.learning_rate, 1.0);
}

// Returns the bytes of the states that have a value for each element of a tile, which a drive can hold.
int64_t spilled_bytes(const TrainedModel& trained, optim::Optimizer& optimizer) {
  std::map<std::string, int64_t> elements;
  for (const auto& parameter : trained.sharded->parameters())
    elements[parameter.name] = parameter.layout.numel();
  int64_t bytes = 0;
  for (const checkpoint::StateTensor& state : optimizer.states()) {
    const auto of = elements.find(state.name.substr(0, state.name.rfind('/')));
    if (of == elements.end() || state.layout.numel() != of->second) continue;
    int64_t count = dtype_size(state.layout.dtype());
    for (const int64_t size : state.box().size) count *= size;
    bytes += count;
  }
  return bytes;
}

// Returns the number of micro-batches that a rank holds at a time: others behind them change nothing, and
// each takes time to follow. A rank with several stages has up to two rounds of them.
int64_t held_micro_batches(const config::Recipe& recipe, int64_t pp) {
  const int64_t all = recipe.gradient_accumulation_steps;
  if (pp > 1 && (recipe.pipeline_schedule == PipelineKind::GPipe || recipe.pipeline_microbatches != 0))
    return all;
  const bool has_several = recipe.pipeline_stages_per_rank > 1 ||
                           (pp > 1 && recipe.pipeline_schedule == PipelineKind::Interleaved);
  return std::min(all, has_several ? 2 * pp : pp + 1);
}

}  // namespace

RankMemory estimate_memory(const config::Recipe& asked, int64_t num_ranks, int64_t rank) {
  count_meta_memory();
  const ParallelDims dims = parallel_dims(asked, num_ranks);
  config::Recipe recipe = config::with_accumulation(asked, dims.dp_replicate * dims.dp_shard);
  recipe.gradient_accumulation_steps = held_micro_batches(recipe, dims.resolved(num_ranks).pp);
  // States on a drive are counted as if they were in memory, and then only their buffers are.
  const auto spill = spill_place(recipe);
  if (spill) recipe.offload_optimizer_device = config::OffloadDevice::None;
  const parallel::DeviceMesh mesh(comm::make_dry_world(rank, num_ranks, /*shares_memory=*/true), dims);
  config::Problems problems;
  PlannedModel planned = plan_model(recipe, open_recipe_base(recipe), problems);
  problems.settle();
  planned.source = std::make_shared<const NoValues>();
  const auto steps = bench_steps(recipe, /*trains_on_data=*/false, planned.model->config(), mesh);

  const Counting counting;
  TrainedModel trained = set_up_model(recipe, std::move(planned), mesh);
  trained.model->train();
  const auto optimizer = make_optimizer(recipe, trained);
  for (int64_t i = 0; i < 2; ++i) {
    steps->make_next();
    follow_step(trained, *optimizer, mesh, recipe, steps->next_step());
  }
  RankMemory memory{rank, memory_ledger::peak(), memory_ledger::most()};
  if (spill) {
    const int64_t spilled = spilled_bytes(trained, *optimizer);
    const int64_t saved = std::max<int64_t>(0, spilled - spill->block_bytes * spill->buffer_count);
    for (memory_ledger::Peak* const peak : {&memory.peak, &memory.most}) {
      int64_t& states = peak->bytes[static_cast<size_t>(MemoryCategory::OptimizerState)];
      states = std::max<int64_t>(0, states - saved);
    }
  }
  return memory;
}

std::vector<int64_t> ranks_to_estimate(const config::Recipe& recipe, int64_t num_ranks) {
  const int64_t stages = parallel_dims(recipe, num_ranks).resolved(num_ranks).pp;
  std::vector<int64_t> ranks;
  for (int64_t stage = 0; stage < stages; ++stage) ranks.push_back(stage * (num_ranks / stages));
  return ranks;
}

}  // namespace tessera::train
