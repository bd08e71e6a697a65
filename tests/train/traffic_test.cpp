// What a step sends along each axis is what the formulas of the methods say.
#include <gtest/gtest.h>

#include "tessera/train/step.h"

#include "tests/testing/mpi_world.h"
#include "tests/testing/paths.h"

namespace tessera::train {
namespace {

constexpr int64_t kTokens = 24;
// Losses, norms and what decides them.
constexpr int64_t kSmall = 4096;

data::MicroBatch batch() {
  data::MicroBatch made;
  for (int64_t i = 0; i < kTokens; ++i) {
    made.input_ids.push_back(i);
    made.labels.push_back(i + 1 < kTokens ? i + 1 : kIgnoreLabel);
    made.position_ids.push_back(i);
  }
  made.document_starts = {0, kTokens};
  made.label_tokens = kTokens - 1;
  return made;
}

struct Sent {
  std::map<std::string, comm::Traffic> by_axis;  // by this rank in one step
  int64_t block_bytes = 0, rest_bytes = 0;       // of the parameters of blocks and of all others
  int64_t num_blocks = 0, hidden_size = 0;

  void expect_bytes(const std::string& axis, int64_t ranks, double whole) const {
    const double wanted = whole * static_cast<double>(ranks - 1) / static_cast<double>(ranks);
    const auto found = by_axis.find(axis);
    ASSERT_NE(found, by_axis.end()) << axis;
    EXPECT_NEAR(static_cast<double>(found->second.bytes_sent), wanted, kSmall) << axis;
    EXPECT_GT(wanted, 10 * kSmall) << "so that the bound says something";
  }
};

// Of the second step, with `num_batches` micro-batches a rank.
Sent run(config::Recipe recipe, int64_t num_batches = 1) {
  recipe.base_model = testing::source_folder() + "/tests/reference/data/models/llama3";
  const auto world = testing::world();
  const parallel::DeviceMesh mesh(world, parallel_dims(recipe, world->size()));
  TrainedModel trained = set_up_model(recipe, mesh);
  Sent sent;
  sent.num_blocks = static_cast<int64_t>(trained.model->blocks().size());
  sent.hidden_size = trained.model->config().hidden_size;
  for (const auto& parameter : trained.sharded->parameters()) {
    const bool is_of_block = parameter.name.find(".layers.") != std::string::npos;
    (is_of_block ? sent.block_bytes : sent.rest_bytes) += parameter.layout.numel() * 4;
  }
  const auto optimizer = optim::make_sgd(optimized_tiles(*trained.sharded, 0.0, false));
  const std::vector<data::MicroBatch> batches(static_cast<size_t>(num_batches), batch());
  std::map<std::string, comm::Traffic> before;
  for (int64_t step = 0; step < 2; ++step) {
    before = mesh.traffic();
    run_step(trained, *optimizer, mesh, {&batches, 100, step, 0.1, 1.0, 1});
  }
  for (const auto& [axis, traffic] : mesh.traffic()) sent.by_axis[axis] = traffic - before[axis];
  return sent;
}

config::Recipe with_stage(config::ZeroStage stage) {
  config::Recipe recipe;
  recipe.zero_stage = stage;
  return recipe;
}

double total(const Sent& sent) { return static_cast<double>(sent.block_bytes + sent.rest_bytes); }

// Rajbhandari et al., "ZeRO" (arXiv 1910.02054), section 7, with n - 1 of n for what a rank has itself.
TEST(TrafficTest, OfShardsIsTwoOrThreeTimesTheParameters) {
  const int64_t n = testing::world()->size();
  if (n == 1) return;
  for (const auto stage : {config::ZeroStage::Zero1, config::ZeroStage::Zero2}) {
    const Sent sent = run(with_stage(stage));
    sent.expect_bytes("dp_shard", n, 2.0 * total(sent));
  }
  const Sent sent = run(with_stage(config::ZeroStage::Zero3));
  // What is in no block stays gathered from the forward to the backward.
  sent.expect_bytes("dp_shard", n, 3.0 * total(sent) - static_cast<double>(sent.rest_bytes));
}

// Wang et al., "ZeRO++" (arXiv 2306.10209), section 3.2: the backward's gathers stay among the ranks that
// keep secondary shards, whatever the number of micro-batches.
TEST(TrafficTest, OfSecondaryShardsTheBackwardsGathersStayInside) {
  const int64_t n = testing::world()->size();
  if (n < 4) return;
  for (const int64_t batches : {2, 5}) {
    config::Recipe recipe = with_stage(config::ZeroStage::Zero3);
    recipe.zero_hpz_partition_size = 2;
    const Sent sent = run(recipe, batches);
    const auto m = static_cast<double>(batches);
    sent.expect_bytes("dp_shard", n, m * 2.0 * total(sent));
    sent.expect_bytes("hpz", 2, m * static_cast<double>(sent.block_bytes));
  }
}

TEST(TrafficTest, OfReplicasIsTwiceTheGradientsOnceAStep) {
  const int64_t n = testing::world()->size();
  if (n == 1) return;
  const Sent sent = run(with_stage(config::ZeroStage::Ddp), 3);
  sent.expect_bytes("dp_replicate", n, 2.0 * total(sent));
}

// Of hidden states, [tokens, hidden_size]: a block gathers twice and reduce-scatters twice in the forward,
// and in the backward the same and the gathers once more; embedding and output projection do so once each
// way.
TEST(TrafficTest, OfTensorParallelLayersIsTheirHiddenStates) {
  const int64_t n = testing::world()->size();
  if (n == 1 || n > 4) return;  // four heads
  config::Recipe recipe;
  recipe.tensor_parallel_size = n;
  const Sent sent = run(recipe, 4);
  const double hidden = static_cast<double>(4 * kTokens * sent.hidden_size * 4);
  sent.expect_bytes("tp", n, hidden * static_cast<double>(10 * sent.num_blocks + 4));
}

}  // namespace
}  // namespace tessera::train
