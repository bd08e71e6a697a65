// Tests that context parallel ranks share the activations of a long document.
#include <gtest/gtest.h>

#include "tessera/core/memory_ledger.h"
#include "tessera/device/cpu_allocator.h"

#include "tests/train/deep_model.h"
#include "tests/train/step_layout.h"

namespace tessera::train {
namespace {

constexpr int64_t kTokens = 131'072;

data::MicroBatch one_document() {
  data::MicroBatch batch;
  const CounterRng rng(7, 3);
  for (int64_t i = 0; i < kTokens; ++i) {
    batch.input_ids.push_back(static_cast<int64_t>(rng.bits(static_cast<uint64_t>(i)) % kVocabulary));
    batch.position_ids.push_back(i);
  }
  batch.labels.assign(batch.input_ids.begin() + 1, batch.input_ids.end());
  batch.labels.push_back(kIgnoreLabel);
  batch.document_starts = {0, kTokens};
  batch.label_tokens = kTokens - 1;
  return batch;
}

struct Measured {
  double loss = 0.0, grad_norm = 0.0;
  // Bytes of activations that the forward keeps, and the largest number with those that the backward
  // computes.
  double kept_bytes = 0.0, bytes = 0.0;
};

Measured measure(const LayoutCase& layout, const std::shared_ptr<comm::Communicator>& world) {
  install_cpu_allocator();
  const config::Recipe recipe = recipe_of(layout);
  const parallel::DeviceMesh mesh(world, parallel_dims(recipe, world->size()));
  TrainedModel trained = set_up(layout, mesh);
  const auto still = optim::make_sgd(optimized_tiles(*trained.sharded, 0.0, false));
  const std::vector<data::MicroBatch> batches = {one_document()};
  memory_ledger::start();
  const StepResult result = run_step(trained, *still, mesh, {&batches, kTokens - 1, 0, 0.0, 0.0, 1});
  memory_ledger::stop();
  const memory_ledger::Peak peak = memory_ledger::peak();
  return {result.loss, result.grad_norm,
          static_cast<double>(memory_ledger::most().of(MemoryCategory::Activations)),
          static_cast<double>(peak.of(MemoryCategory::Activations) + peak.of(MemoryCategory::Backward))};
}

// A window keeps the work linear in the length of the document.
TEST(LongContextTest, Of131072TokensEachRankKeepsItsPartOfTheActivations) {
  const auto world = testing::world();
  const DeepModel model("mistral_sliding", 4, {{"num_key_value_heads", 4}, {"sliding_window", 48}});
  LayoutCase layout{.family = "mistral_sliding", .folder = model.path()};
  Measured want;
  if (world->rank() == 0) want = measure(layout, comm::Communicator::single());
  const at::Tensor shared =
      at::tensor({want.loss, want.grad_norm, want.kept_bytes, want.bytes}, on_host(at::kDouble));
  world->broadcast(shared, 0);
  const auto* const values = shared.const_data_ptr<double>();
  want = {values[0], values[1], values[2], values[3]};
  ASSERT_GT(want.kept_bytes, 4.0 * kTokens * 24 * 8) << "a hidden state of each token and layer";

  layout.cp = world->size();
  const auto ranks = static_cast<double>(world->size());
  // Ulysses needs more: heads are on their way while it still keeps the tensors that they come from.
  struct Bound {
    ContextParallelMethod method;
    double kept, all;
  };
  for (const auto& [method, most_kept, most] :
       {Bound{ContextParallelMethod::Ring, 1.02, 1.3}, Bound{ContextParallelMethod::Ulysses, 1.25, 1.4}}) {
    // Ulysses needs ranks that share the four heads evenly, which three cannot.
    if (method == ContextParallelMethod::Ulysses && world->size() == 3) continue;
    SCOPED_TRACE("method " + std::to_string(static_cast<int>(method)));
    layout.method = method;
    const Measured got = measure(layout, world);
    EXPECT_NEAR(got.loss, want.loss, 1e-10 * want.loss);
    EXPECT_NEAR(got.grad_norm, want.grad_norm, 1e-9 * want.grad_norm);
    const double kept = got.kept_bytes / want.kept_bytes, all = got.bytes / want.bytes;
    if (world->rank() == 0) {
      std::printf("%.0f MiB in one process, %.3f of it on each of %.0f ranks; with the backward %.3f\n",
                  want.kept_bytes / (1 << 20), kept, ranks, all);
    }
    EXPECT_LT(kept, most_kept / ranks);
    EXPECT_LT(all, most / ranks) << "with keys and gradients on their way";
  }
}

}  // namespace
}  // namespace tessera::train
