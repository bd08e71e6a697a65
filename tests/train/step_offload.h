// Compares steps that keep parameters, optimizer states and activations on the host, on devices whose
// streams run late, with a run that keeps everything on the device: losses, gradients and weights are equal
// to the bit.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tests/comm/nccl/nccl_ranks.h"
#include "tests/testing/extent.h"
#include "tests/train/step_layout.h"

namespace tessera::train::offload {

namespace fake = testing::fake_device;
using World = std::shared_ptr<comm::Communicator>;
// The tensors that a rank has at the end, by name.
using Result = std::map<std::string, at::Tensor>;

// The axis, or the axes, along which ranks lie.
enum class Along { Shard, Context, Pipeline, PipelineAndShard };

struct Way {
  std::string family = "llama2";
  Along along = Along::Shard;
  config::Checkpointing checkpointing = config::Checkpointing::Off;
  int64_t every = 1;
  config::ZeroStage stage = config::ZeroStage::Zero3;
  at::ScalarType compute = at::kFloat;
  config::OptimizerKind optimizer = config::OptimizerKind::AdamW;
  bool offloads_states = false, offloads_activations = false, offloads_parameters = false;
  bool has_bf16_states = false;
};

inline ParallelDims dims_of(const Way& way, int64_t ranks) {
  switch (way.along) {
    case Along::Shard: return {.dp_shard = ranks};
    case Along::Context: return {.dp_shard = 1, .cp = ranks};
    case Along::Pipeline: return {.dp_shard = 1, .pp = ranks};
    case Along::PipelineAndShard: return {.dp_shard = ranks / 2, .pp = 2};
  }
  return {};
}

inline TrainedModel set_up(const Way& way, const parallel::DeviceMesh& mesh) {
  TrainedModel trained;
  const std::string folder = models::reference_folder(way.family);
  trained.model = models::build_model(folder, at::kFloat);
  models::ParallelizeOptions options;
  options.checkpoint_every = way.checkpointing == config::Checkpointing::Block ? way.every : 0;
  options.recompute_mlps = way.checkpointing == config::Checkpointing::Mlp;
  options.least_offloaded_bytes = way.offloads_activations ? 1 : 0;
  options.shard.average_gradients = false;
  options.shard.broadcast_initial_values = false;
  options.shard.reshard_after_forward = way.stage == config::ZeroStage::Zero3;
  options.shard.reduce_every_backward =
      way.stage >= config::ZeroStage::Zero2 && mesh.size(parallel::kAxisPp) == 1;
  options.shard.offload_parameters = way.offloads_parameters;
  if (way.compute != at::kFloat)
    options.shard.mixed_precision = {.param_dtype = way.compute,
                                     .reduce_dtype = at::kFloat,
                                     .keeps_narrow_gradients = way.along == Along::Shard,
                                     .cast_forward_inputs = false};
  if (const int64_t stages = mesh.size(parallel::kAxisPp); stages > 1)
    options.pipeline = models::plan_pipeline(*trained.model, stages, {PipelineKind::OneFOneB, 1});
  const auto files = std::make_shared<const io::ModelFiles>(io::ModelFiles::open(folder));
  const auto source = checkpoint::stored_source(checkpoint::stored_tensors(files),
                                                models::state_dict_adapter(*trained.model));
  models::ParallelModel parallel = models::parallelize(*trained.model, mesh, options);
  trained.sharded = std::move(parallel.sharded);
  trained.pipeline = std::move(parallel.pipeline);
  trained.sharded->materialize([&](const parallel::ShardedParameter& parameter) {
    const at::Tensor values = at::empty(parameter.tile.sizes(), on_host(parameter.tile.scalar_type()));
    source->read(parameter.name, parameter.box, values);
    parameter.tile.detach().copy_(values);
  });
  trained.model->train();
  return trained;
}

inline Result train(const Way& way, const World& world) {
  const parallel::DeviceMesh mesh(world, dims_of(way, world->size()));
  TrainedModel trained = set_up(way, mesh);
  const auto tiles = optimized_tiles(*trained.sharded, 0.1, false);
  const auto optimizer =
      way.optimizer == config::OptimizerKind::Sgd
          ? optim::make_sgd(tiles)
          : optim::make_adamw(tiles, {.offload_chunk_elements = way.offloads_states ? 1000 : 0,
                                      .has_bf16_states = way.has_bf16_states,
                                      .seed = 3});
  const int64_t readers = mesh.size(parallel::kAxisDp);
  const int64_t count = (way.along == Along::Shard ? 2 : 3) * readers;
  Result result;
  for (int64_t number = 0; number < 3; ++number) {
    const auto batches = micro_batches(number, count, mesh.coordinate(parallel::kAxisDp), readers);
    int64_t label_tokens = 0;
    for (int64_t i = 0; i < count; ++i) label_tokens += micro_batch(number, i, count).label_tokens;
    const StepResult step =
        run_step(trained, *optimizer, mesh, {&batches, label_tokens, number, 0.01, 0.5, 77});
    const std::string name = "step " + std::to_string(number);
    result[name] = at::tensor({step.loss, step.grad_norm}, on_host(at::kDouble));
    for (const auto& parameter : trained.sharded->parameters())
      result[name + " gradient " + parameter.name] = parameter.tile.grad().clone();
  }
  trained.sharded->wait_for_tiles();
  for (const auto& parameter : trained.sharded->parameters())
    result[parameter.name] = parameter.tile.detach();
  for (const auto& state : optimizer->states()) result[state.name] = state.get();
  for (auto& [name, tensor] : result) tensor = tensor.to(kHost);
  return result;
}

inline std::vector<Result> on_devices(int64_t ranks, const Way& way) {
  if (ranks == 1) return {train(way, comm::Communicator::single(fake::device(0)))};
  std::vector<Result> results(static_cast<size_t>(ranks));
  testing::run_nccl_ranks(
      ranks, [&](const World& world) { results[static_cast<size_t>(world->rank())] = train(way, world); });
  return results;
}

// Describes the first difference; "" if there is none.
inline std::string difference(const std::vector<Result>& expected, const std::vector<Result>& got) {
  for (size_t rank = 0; rank < expected.size(); ++rank) {
    EXPECT_EQ(expected[rank].size(), got[rank].size());
    for (const auto& [name, tensor] : expected[rank]) {
      if (!at::equal(tensor, got[rank].at(name))) return name + " on rank " + std::to_string(rank);
    }
  }
  return "";
}

inline void expect_same_bits(const Way& way, const std::vector<int64_t>& all_ranks = {1, 2, 3}) {
  Way offloaded = way;
  offloaded.offloads_states = offloaded.offloads_activations = true;
  testing::Random random;
  for (const int64_t ranks : testing::some_of(all_ranks, 1, random)) {
    testing::use_delays(1);
    const std::vector<Result> expected = on_devices(ranks, way);
    EXPECT_TRUE(expected[0].at("step 2").isfinite().all().item<bool>());
    for (const uint64_t seed : testing::some_of<uint64_t>({1, 2}, 1, random)) {
      testing::use_delays(seed);
      // Every other seed offloads parameters too.
      offloaded.offloads_parameters = seed % 2 == 1;
      EXPECT_EQ(difference(expected, on_devices(ranks, offloaded)), "") << ranks << " ranks, seed " << seed;
    }
  }
  fake::synchronize();
  EXPECT_STREQ(testing::stub().faults(), "");
  EXPECT_EQ(fake::fault(), "");
}

}  // namespace tessera::train::offload
