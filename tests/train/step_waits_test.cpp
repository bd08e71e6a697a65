// Tests that a rank waits for its device once in a step, whatever the layout and whichever losses are asked
// for.
#include "tests/comm/nccl/nccl_ranks.h"
#include "tests/testing/extent.h"
#include "tests/train/step_layout.h"

namespace tessera::train {
namespace {

namespace fake = testing::fake_device;
using World = std::shared_ptr<comm::Communicator>;

constexpr int64_t kSteps = 3, kBatches = 3, kDatasets = 2;

struct Layout {
  int64_t dp_shard = 1, tp = 1, cp = 1;
  ContextParallelMethod method = ContextParallelMethod::Auto;
  bool names_datasets = false;
  int64_t ranks() const { return dp_shard * tp * cp; }
};

TrainedModel set_up(const parallel::DeviceMesh& mesh, ContextParallelMethod method) {
  TrainedModel trained;
  const std::string folder = models::reference_folder("llama2");
  trained.model = models::build_model(folder, at::kFloat);
  const auto files = std::make_shared<const io::ModelFiles>(io::ModelFiles::open(folder));
  const auto source = checkpoint::stored_source(checkpoint::stored_tensors(files),
                                                models::state_dict_adapter(*trained.model));
  models::ParallelizeOptions options;
  options.context_parallel = method;
  options.shard.average_gradients = false;
  options.shard.broadcast_initial_values = false;
  models::ParallelModel parallel = models::parallelize(*trained.model, mesh, options);
  trained.sharded = std::move(parallel.sharded);
  trained.sharded->materialize([&](const parallel::ShardedParameter& parameter) {
    const at::Tensor values = at::empty(parameter.tile.sizes(), on_host(parameter.tile.scalar_type()));
    source->read(parameter.name, parameter.box, values);
    parameter.tile.detach().copy_(values);
  });
  trained.model->train();
  return trained;
}

struct Outcome {
  std::vector<StepResult> steps;
  int64_t waits = 0;  // waits of all ranks, in all steps but the first
};

Outcome train(const Layout& layout, const World& world) {
  const parallel::DeviceMesh mesh(world, {.dp_shard = layout.dp_shard, .cp = layout.cp, .tp = layout.tp});
  TrainedModel trained = set_up(mesh, layout.method);
  const auto adamw = optim::make_adamw(optimized_tiles(*trained.sharded, 0.1, false), {});
  const int64_t count = kBatches * 2;  // micro-batches of all ranks, the same in any layout
  Outcome outcome;
  int64_t before = 0;
  for (int64_t number = 0; number < 1 + kSteps; ++number) {
    auto batches =
        micro_batches(number, count, mesh.coordinate(parallel::kAxisDp), mesh.size(parallel::kAxisDp));
    if (layout.names_datasets) {
      for (data::MicroBatch& batch : batches) {
        for (size_t token = 0; token < batch.input_ids.size(); ++token)
          batch.datasets.push_back(static_cast<int64_t>(token) % kDatasets);
      }
    }
    int64_t label_tokens = 0;
    for (int64_t i = 0; i < count; ++i) label_tokens += micro_batch(number, i, count).label_tokens;
    StepInput input{&batches, label_tokens, number, 0.01, 0.5, 77};
    input.num_datasets = layout.names_datasets ? kDatasets : 0;
    outcome.steps.push_back(run_step(trained, *adamw, mesh, input));
    // No rank may be in a step while the waits are counted.
    world->barrier();
    if (number == 0) before = fake::waits();
    outcome.waits = fake::waits() - before;
    world->barrier();
  }
  return outcome;
}

Outcome on_devices(const Layout& layout) {
  testing::use_delays(3);
  if (layout.ranks() == 1) return train(layout, comm::Communicator::single(fake::device(0)));
  Outcome outcome;
  testing::run_nccl_ranks(layout.ranks(), [&](const World& world) {
    Outcome own = train(layout, world);
    if (world->rank() == 0) outcome = std::move(own);
  });
  return outcome;
}

TEST(StepWaitsTest, EachRankWaitsOnceAStep) {
  using enum ContextParallelMethod;
  const std::vector<Layout> others = {
      {.dp_shard = 2},          {.dp_shard = 3},           {.tp = 3},
      {.dp_shard = 2, .tp = 3}, {.cp = 3, .method = Ring}, {.cp = 2, .method = Ulysses}};
  testing::Random random;
  std::vector<Layout> layouts = testing::some_of(others, 2, random);
  // One process gives the losses that the others are compared with.
  layouts.insert(layouts.begin(), Layout());
  Outcome expected;
  for (const Layout& layout : layouts) {
    for (const bool names_datasets : {false, true}) {
      SCOPED_TRACE("dp_shard " + std::to_string(layout.dp_shard) + ", tp " + std::to_string(layout.tp) +
                   ", cp " + std::to_string(layout.cp) + (names_datasets ? ", with datasets" : ""));
      Layout named = layout;
      named.names_datasets = names_datasets;
      const Outcome got = on_devices(named);
      EXPECT_EQ(got.waits, kSteps * layout.ranks());
      if (expected.steps.empty()) expected = got;
      for (size_t i = 0; i < got.steps.size(); ++i) {
        EXPECT_NEAR(got.steps[i].loss, expected.steps[i].loss, 1e-3) << "step " << i;
        ASSERT_EQ(std::ssize(got.steps[i].dataset_losses), names_datasets ? kDatasets : 0);
        if (!names_datasets) continue;
        // The losses of the datasets add up to that of all labels.
        int64_t label_tokens = 0;
        for (int64_t m = 0; m < kBatches * 2; ++m)
          label_tokens += micro_batch(static_cast<int64_t>(i), m, kBatches * 2).label_tokens;
        const std::vector<double>& parts = got.steps[i].dataset_losses;
        EXPECT_NEAR(parts[0] + parts[1], got.steps[i].loss * static_cast<double>(label_tokens), 1e-4);
        EXPECT_GT(parts[0], 0.0);
        EXPECT_GT(parts[1], 0.0);
      }
    }
  }
  fake::synchronize();
  EXPECT_STREQ(testing::stub().faults(), "");
  EXPECT_EQ(fake::fault(), "");
}

}  // namespace
}  // namespace tessera::train
