#include "tessera/train/step/relora.h"

#include <cmath>
#include <string>
#include <unordered_map>
#include <vector>

#include <ATen/ATen.h>

#include "tessera/checkpoint/random_source.h"
#include "tessera/core/rng.h"
#include "tessera/device/memory_scope.h"
#include "tessera/nn/initial_value.h"
#include "tessera/parallel/gather_tensor.h"
#include "tessera/peft/layer_options.h"
#include "tessera/peft/lora.h"

namespace tessera::train {
namespace {

using parallel::ShardedParameter;

// The parameters of a layer with an adapter.
struct AdaptedLayer {
  std::string name;
  const ShardedParameter *weight, *a, *b;
};

// Returns the layers of this rank's stage of the pipeline, in an order that is the same on all of its ranks.
std::vector<AdaptedLayer> layers_of(const TrainedModel& trained) {
  std::unordered_map<std::string, const ShardedParameter*> by_name;
  for (const ShardedParameter& parameter : trained.sharded->parameters())
    by_name.emplace(parameter.name, &parameter);
  const auto find = [&](const std::string& name) {
    const auto found = by_name.find(name);
    return found == by_name.end() ? nullptr : found->second;
  };
  std::vector<AdaptedLayer> layers;
  for (const std::string& name : trained.adapter->targets.adapted) {
    const AdaptedLayer layer = {name, find(name + ".weight"), find(name + peft::kFactorA),
                                find(name + peft::kFactorB)};
    if (layer.weight != nullptr && layer.a != nullptr && layer.b != nullptr) layers.push_back(layer);
  }
  return layers;
}

// Returns where the magnitudes of a state's tile lie above the quantile `ratio` of the whole tensor.
// Collective.
at::Tensor kept_of(const checkpoint::StateTensor& state, const std::vector<parallel::RankAxis>& axes,
                   double ratio) {
  const at::Tensor values = state.get();
  const at::Tensor whole = parallel::gather_tensor(values, state.layout, axes, state.name);
  const auto rank = static_cast<int64_t>(std::floor(ratio * static_cast<double>(whole.numel() - 1)));
  const at::Tensor quantile = std::get<0>(at::kthvalue(whole.view({-1}).abs().to(at::kDouble), rank + 1));
  return values.abs().gt(quantile);
}

// Sets the smallest magnitudes of both moments of a factor to zero. A first moment goes with its second one:
// alone it would be divided by epsilon in the next update, since B = 0 leaves A without a gradient.
void prune(const checkpoint::StateTensor& first, const checkpoint::StateTensor& second,
           const std::vector<parallel::RankAxis>& axes, double ratio) {
  const at::Tensor kept = kept_of(second, axes, ratio);
  const at::Tensor both = kept_of(first, axes, ratio).logical_and_(kept);
  first.set(first.get().mul_(both));
  second.set(second.get().mul_(kept));
}

}  // namespace

bool restarts_after(const config::Recipe& recipe, int64_t steps) {
  return recipe.relora && steps > 0 && steps % recipe.jagged_restart_steps == 0;
}

void fold_adapter(const TrainedModel& trained) {
  const at::NoGradGuard no_grad;
  const MemoryScope memory(MemoryCategory::Other);
  const peft::LayerOptions options_of(trained.adapter->options);
  const parallel::ShardedModel& sharded = *trained.sharded;
  sharded.wait_for_tiles();
  for (const AdaptedLayer& layer : layers_of(trained)) {
    const at::Tensor a = sharded.full_tensor(*layer.a), b = sharded.full_tensor(*layer.b);
    const parallel::Box& box = layer.weight->box;
    const at::Tensor weight = layer.weight->tile.detach();
    if (weight.numel() > 0) {
      const at::Tensor change =
          at::mm(b.narrow(0, box.offset[0], box.size[0]), a.narrow(1, box.offset[1], box.size[1]));
      weight.add_(change.mul_(peft::lora_scaling(options_of(layer.name))));
    }
    layer.b->tile.detach().zero_();
  }
}

void restart_adapter(const config::Recipe& recipe, const TrainedModel& trained, optim::Optimizer& optimizer,
                     int64_t steps) {
  fold_adapter(trained);
  const at::NoGradGuard no_grad;
  // The stream of this restart's values, apart from those of the first ones and of other restarts.
  const uint64_t seed =
      CounterRng(static_cast<uint64_t>(recipe.seed), stream_of("relora")).bits(static_cast<uint64_t>(steps));
  std::unordered_map<std::string, checkpoint::StateTensor> states;
  for (checkpoint::StateTensor& state : optimizer.states()) states.emplace(state.name, std::move(state));
  for (const AdaptedLayer& layer : layers_of(trained)) {
    const ShardedParameter& a = *layer.a;
    const std::vector<int64_t>& shape = a.layout.shape();
    const double bound = 1.0 / std::sqrt(static_cast<double>(shape[1]));
    if (a.tile.numel() > 0)
      checkpoint::fill_box(a.tile.detach(), a.name, shape, a.box, nn::InitialValue::uniform(bound), seed);
    for (const ShardedParameter* factor : {layer.a, layer.b})
      prune(states.at(factor->name + "/exp_avg"), states.at(factor->name + "/exp_avg_sq"), factor->axes,
            recipe.relora_prune_ratio);
  }
}

}  // namespace tessera::train
