#include "tests/train/step_layout.h"

#include "tessera/ops/leaf.h"

#include "tests/io/expect_error.h"
#include "tests/testing/extent.h"
#include "tests/testing/shared_random.h"
#include "tests/train/deep_model.h"
#include "tests/train/parity_families.h"

namespace tessera::train {
namespace {

// Adds layouts with up to as many tensor parallel ranks as heads, also uneven ones: cut between key/value
// heads, and with more ranks than these between the query heads of each.
void add_tensor_parallel(std::vector<LayoutCase>& layouts, const std::string& family, int64_t num_heads,
                         int64_t num_kv_heads) {
  const int64_t world = testing::world()->size();
  for (int64_t tp = 2; tp <= std::min(world, num_heads); ++tp) {
    if (world % tp != 0 || (tp > num_kv_heads && tp % num_kv_heads != 0)) continue;
    for (const auto stage : {config::ZeroStage::Zero1, config::ZeroStage::Zero2, config::ZeroStage::Zero3}) {
      const bool async = stage != config::ZeroStage::Zero1;
      layouts.push_back({.family = family, .stage = stage, .tp = tp, .async_tp = async});
    }
    if (world / tp % 2 == 0) layouts.push_back({.family = family, .dp_replicate = 2, .tp = tp});
  }
}

// Adds layouts with context parallel ranks, alone and beside all other axes. Some documents are shorter than
// 2 cp.
void add_context_parallel(std::vector<LayoutCase>& layouts, const std::string& family, int64_t num_kv_heads) {
  const int64_t world = testing::world()->size();
  for (int64_t cp = 2; cp <= world; ++cp) {
    if (world % cp != 0) continue;
    for (const auto method :
         {ContextParallelMethod::Ring, ContextParallelMethod::Ulysses, ContextParallelMethod::Usp}) {
      // Usp over fewer than four ranks is one of the other methods.
      if (method == ContextParallelMethod::Usp && cp < 4) continue;
      layouts.push_back({.family = family, .cp = cp, .method = method});
      const int64_t rest = world / cp;
      if (rest > 1 && rest <= num_kv_heads) {
        layouts.push_back({.family = family, .tp = rest, .cp = cp, .method = method, .async_tp = cp == 2});
      }
    }
    layouts.push_back({.family = family, .stage = config::ZeroStage::Zero1, .cp = cp});
    if (world / cp % 2 == 0) {
      layouts.push_back({.family = family, .stage = config::ZeroStage::Zero2, .dp_replicate = 2, .cp = cp});
    }
  }
}

void check_layouts(const ParityFamily& family, const std::vector<LayoutCase>& layouts) {
  const auto changed = changed_model(family, 3);
  constexpr config::Checkpointing kKinds[] = {config::Checkpointing::Off, config::Checkpointing::Mlp,
                                              config::Checkpointing::Block};
  size_t index = 0;
  std::vector<LayoutCase> cases;
  for (LayoutCase layout : layouts) {
    if (changed) layout.folder = changed->path();
    for (const Trained trained :
         {Trained::All, Trained::LoraWithDropout, Trained::QloraWithDropout, Trained::SomeFrozen,
          Trained::Dora, Trained::QDora, Trained::DoraFromPissa, Trained::LoraWithBias, Trained::Ia3,
          Trained::Norms, Trained::VeraWithDropout, Trained::TokenRows, Trained::Prompt}) {
      if (changed && trained == Trained::SomeFrozen) continue;  // which needs files of weights
      // Virtual tokens have no rows in the table of the layers.
      if (family.name == "gemma4_shared" && trained == Trained::Prompt) continue;
      layout.trained = trained;
      ++index;
      for (const config::Checkpointing kind : kKinds) {
        // Layouts that differ in checkpointing alone take turns.
        if (kind != kKinds[(index + index / 3) % 3]) continue;
        layout.checkpointing = kind;
        cases.push_back(layout);
      }
    }
  }
  testing::Random random = testing::shared_random();
  expect_same_as_one_process(testing::some_of(cases, 3, random));
}

class StepLayoutOfFamilyTest : public ::testing::TestWithParam<ParityFamily> {};

// Checks every ZeRO stage, and replication of shards, tensor and context parallelism if the number of ranks
// allows it.
TEST_P(StepLayoutOfFamilyTest, EqualsOneProcess) {
  const ParityFamily& row = GetParam();
  const std::string& family = row.name;
  std::vector<LayoutCase> layouts;
  add_tensor_parallel(layouts, family, row.heads, row.kv_heads);
  add_context_parallel(layouts, family, row.kv_heads);
  for (const auto stage : {config::ZeroStage::Ddp, config::ZeroStage::Zero1, config::ZeroStage::Zero2,
                           config::ZeroStage::Zero3}) {
    if (testing::world()->size() > 4) break;  // fewer cases suffice on many ranks
    layouts.push_back({.family = family, .stage = stage});
    if (testing::world()->size() % 2 == 0 && stage != config::ZeroStage::Ddp) {
      layouts.push_back({.family = family, .stage = stage, .dp_replicate = 2});
    }
  }
  check_layouts(row, layouts);
}
INSTANTIATE_TEST_SUITE_P(All, StepLayoutOfFamilyTest, ::testing::ValuesIn(families_in(Parity::Layouts)),
                         name_of_family);

class StepContextParallelTest : public ::testing::TestWithParam<ParityFamily> {};

TEST_P(StepContextParallelTest, EqualsOneProcess) {
  std::vector<LayoutCase> layouts;
  add_context_parallel(layouts, GetParam().name, GetParam().kv_heads);
  check_layouts(GetParam(), layouts);
}
INSTANTIATE_TEST_SUITE_P(All, StepContextParallelTest,
                         ::testing::ValuesIn(families_in(Parity::ContextParallel)), name_of_family);

// If masks depended on the rank, or on the position within it, the loss would differ.
TEST(StepLayoutTest, DropoutDependsOnTheGlobalMicroBatchAlone) {
  const LayoutCase layout{.family = "llama3", .trained = Trained::LoraWithDropout};
  const auto single = comm::Communicator::single();
  const config::Recipe recipe = recipe_of(layout);
  const parallel::DeviceMesh mesh(single, parallel_dims(recipe, 1));
  TrainedModel trained = set_up(layout, mesh);
  const auto still = optim::make_sgd(optimized_tiles(*trained.sharded, 0.0, false));
  const auto loss_of = [&](const std::vector<data::MicroBatch>& batches, int64_t step, uint64_t seed) {
    return run_step(trained, *still, mesh, {&batches, 1, step, 0.0, 0.0, seed}).loss;
  };
  const data::MicroBatch batch = micro_batch(0, 2, 9), empty = micro_batch(0, 8, 9);
  const double first = loss_of({batch, empty}, 0, 1);
  EXPECT_EQ(loss_of({batch, empty}, 0, 1), first);
  EXPECT_NE(loss_of({empty, batch}, 0, 1), first);
  EXPECT_NE(loss_of({batch, empty}, 1, 1), first);
  EXPECT_NE(loss_of({batch, empty}, 0, 2), first);
}

// A whole training with the plain formulas, which run on any device, gives the numbers of the kernels.
TEST(StepLayoutTest, PlainOpsTrainAsKernelsDo) {
  const int64_t count = 3 * testing::world()->size();  // three on every rank
  for (const char* family : {"llama3", "qwen3", "gpt2"}) {
    for (const Trained trained : {Trained::All, Trained::LoraWithDropout, Trained::QloraWithDropout}) {
      for (const auto checkpointing : {config::Checkpointing::Off, config::Checkpointing::Mlp}) {
        SCOPED_TRACE(std::string(family) + ", trained " + std::to_string(static_cast<int>(trained)));
        const LayoutCase layout{.family = family, .trained = trained, .checkpointing = checkpointing};
        const Outcome want = run(layout, testing::world(), count);
        const ops::PlainOps plain;
        expect_equal(run(layout, testing::world(), count), want, 1e-10);
      }
    }
  }
}

// Ranks that share micro-batches share their loss. The error names the first of these ranks, on every rank.
TEST(StepLayoutTest, ALossThatIsNotFiniteNamesARankOfTheWorld) {
  const auto world = testing::world();
  const LayoutCase layout{.family = "llama3", .tp = world->size() % 2 == 0 ? 2 : 1};
  const config::Recipe recipe = recipe_of(layout);
  const parallel::DeviceMesh mesh(world, parallel_dims(recipe, world->size()));
  TrainedModel trained = set_up(layout, mesh);
  const auto still = optim::make_sgd(optimized_tiles(*trained.sharded, 0.0, false));
  for (const auto& parameter : trained.sharded->parameters()) {
    if (parameter.name == "model.norm.weight") parameter.tile.detach().fill_(std::nan(""));
  }
  // The last ones along dp are the only ones that have labels.
  const bool is_last = mesh.coordinate(parallel::kAxisDp) + 1 == mesh.size(parallel::kAxisDp);
  const std::vector<data::MicroBatch> batches = {is_last ? micro_batch(0, 2, 9) : data::MicroBatch{}};
  testing::expect_error(ErrorKind::Numerics,
                        {"not finite on rank " + std::to_string(world->size() - layout.tp)}, [&] {
                          run_step(trained, *still, mesh, {&batches, 1, 0, 0.0, 0.0, 1});
                        });
}

}  // namespace
}  // namespace tessera::train
