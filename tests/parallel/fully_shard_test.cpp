// Tests of fully_shard over ranks that are threads, so that they need no launcher.
#include "tessera/parallel/fully_shard.h"

#include <optional>

#include <gtest/gtest.h>

#include "tessera/comm/fake/fake_backend.h"
#include "tessera/core/error.h"
#include "tessera/core/memory_ledger.h"
#include "tessera/device/cpu_allocator.h"
#include "tessera/ops/deferred_gradient.h"
#include "tessera/ops/linear.h"

#include "tests/parallel/interruption.h"
#include "tests/parallel/parity.h"

namespace tessera::parallel {
namespace {

using testing::ToyLoss;

ShardOptions in_type(at::ScalarType compute, std::optional<at::ScalarType> reduce = std::nullopt) {
  ShardOptions options;
  options.mixed_precision = {.param_dtype = compute, .reduce_dtype = reduce};
  return options;
}

TEST(FullyShardTest, EveryPolicyEqualsOneProcess) {
  for (const int64_t ranks : {1, 2, 3}) {
    for (const auto& parity : testing::parity_cases(ranks)) {
      comm::run_fake_ranks(ranks, [&](const auto& world) { testing::check_parity(world, parity); });
    }
  }
}

// The first axis of the mesh goes over machines, so that hybrid sharding shares memory within each machine;
// the other policies send messages.
TEST(FullyShardTest, RanksOfTwoMachinesEqualOneProcess) {
  for (const auto& parity : testing::parity_cases(4)) {
    if (parity.accumulation > 1 && parity.checkpoint_activations) continue;
    comm::run_fake_ranks(
        4, [&](const auto& world) { testing::check_parity(world, parity); }, 2);
  }
}

// There are 4 and 6 ranks, on one machine, or on machines with as many ranks as keep secondary shards
// together.
TEST(FullyShardTest, SecondaryShardsEqualOneProcess) {
  for (const int64_t ranks : {4, 6}) {
    for (const auto& parity : testing::parity_cases(ranks)) {
      if (parity.hpz == 1) continue;
      for (const int64_t ranks_per_node : {int64_t{0}, parity.hpz}) {
        comm::run_fake_ranks(
            ranks, [&](const auto& world) { testing::check_parity(world, parity); }, ranks_per_node);
      }
    }
  }
}

// Returns the bytes that the gathered parameters of 4 ranks take between forward and backward, and after the
// backward.
std::pair<int64_t, int64_t> gathered_bytes(int64_t hpz) {
  std::pair<int64_t, int64_t> bytes;
  memory_ledger::start();
  comm::run_fake_ranks(
      4,
      [&](const auto& world) {
        const DeviceMesh mesh(world, {.hpz = hpz});
        testing::ToyModel model;
        const auto sharded =
            fully_shard(model, {world, comm::Communicator::single(), mesh.group(kAxisHpz)}, model.units());
        const auto note = [&](int64_t& live) {
          world->barrier();
          if (world->rank() == 0) live = memory_ledger::live().of(MemoryCategory::GatheredParameters);
          world->barrier();
        };
        const auto batch = testing::toy_batch(world->rank());
        const at::Tensor loss = model.loss(batch.words, batch.labels);
        note(bytes.first);
        loss.backward();
        note(bytes.second);
      },
      1);
  memory_ledger::stop();
  return bytes;
}

TEST(FullyShardTest, SecondaryShardsTakeTheirPartOfTheMemory) {
  install_cpu_allocator();
  int64_t block_bytes = 0;
  for (const auto& block : testing::ToyModel().blocks) {
    for (const at::Tensor& parameter : block->parameters()) block_bytes += 8 * parameter.numel();
  }
  const auto [plain, plain_after] = gathered_bytes(1);
  const auto [with_secondary, after] = gathered_bytes(2);
  // Each of the two pairs of ranks keeps every block once.
  EXPECT_EQ(with_secondary - plain, 2 * block_bytes);
  EXPECT_EQ(plain_after, 0);
  EXPECT_EQ(after, 0);
}

TEST(FullyShardTest, RanksOfOneMachineReadOneCopyOfAGatheredUnit) {
  const void* places[3][2] = {};
  comm::run_fake_ranks(3, [&](const auto& world) {
    testing::ToyModel model;
    const auto sharded = fully_shard(model, {world}, model.units());
    sharded->unshard();
    places[world->rank()][0] = model.embedding.data_ptr();
    places[world->rank()][1] = model.blocks[1]->up.data_ptr();
    sharded->reshard();
    EXPECT_EQ(model.embedding.storage().nbytes(), 0u);
  });
  for (const int which : {0, 1}) {
    EXPECT_NE(places[0][which], nullptr);
    EXPECT_EQ(places[0][which], places[1][which]);
    EXPECT_EQ(places[0][which], places[2][which]);
  }
  EXPECT_NE(places[0][0], places[0][1]);
}

// Names the units whose parameters have memory: "root" and the numbers of blocks.
std::string held_by(const testing::ToyModel& model) {
  std::string names;
  if (model.embedding.storage().nbytes() > 0) names += "root ";
  for (size_t i = 0; i < model.blocks.size(); ++i) {
    if (model.blocks[i]->up.storage().nbytes() > 0) names += std::to_string(i) + " ";
  }
  return names;
}

TEST(FullyShardTest, ParametersHoldNoMemoryBetweenUses) {
  comm::run_fake_ranks(2, [](const auto& world) {
    testing::ToyModel model;
    const auto sharded = fully_shard(model, {world}, model.units());
    EXPECT_EQ(model.blocks[0]->up.storage().nbytes(), 0u);
    EXPECT_EQ(model.embedding.sizes(), (std::vector<int64_t>{11, 5}));
    const auto batch = testing::toy_batch(world->rank());
    const at::Tensor loss = model.loss(batch.words, batch.labels);
    EXPECT_EQ(model.blocks[0]->up.storage().nbytes(), 0u);  // freed after its forward
    EXPECT_GT(model.embedding.storage().nbytes(), 0u);      // the root stays
    loss.backward();
    EXPECT_EQ(model.embedding.storage().nbytes(), 0u);
    int64_t owned = 0;
    for (const auto& parameter : sharded->parameters()) owned += parameter.tile.numel();
    EXPECT_LT(owned, 11 * 5 + 2 * (7 * 5 * 2 + 8) + 3 * 5 * 2 + 4 + 8);
  });
}

TEST(FullyShardTest, FullTensorPutsTheTilesTogether) {
  for (const int64_t ranks : {1, 2, 3, 5}) {
    comm::run_fake_ranks(ranks, [](const auto& world) {
      const testing::ToyModel original;
      testing::ToyModel model;
      const auto sharded = fully_shard(model, {world}, model.units());
      for (const auto& parameter : sharded->parameters()) {
        const at::Tensor expected = *original.named_parameters().find(parameter.name);
        EXPECT_TRUE(at::equal(sharded->full_tensor(parameter), expected)) << parameter.name;
      }
    });
  }
}

TEST(FullyShardTest, ValuesOfTheFirstRankAreTaken) {
  comm::run_fake_ranks(3, [](const auto& world) {
    testing::ToyModel model;
    {
      const at::NoGradGuard no_grad;
      model.unused.fill_(static_cast<double>(world->rank() + 1));
    }
    const auto sharded = fully_shard(model, {world}, model.units());
    for (const auto& parameter : sharded->parameters()) {
      if (parameter.name != "unused") continue;
      EXPECT_TRUE(sharded->full_tensor(parameter).eq(1.0).all().template item<bool>());
    }
  });
}

TEST(FullyShardTest, ComputeTypeDiffersFromTheStoredType) {
  for (const int64_t ranks : {1, 2}) {
    comm::run_fake_ranks(ranks, [](const auto& world) {
      testing::ToyModel model;
      const auto sharded = fully_shard(model, {world}, model.units(), in_type(at::kFloat, at::kDouble));
      const auto batch = testing::toy_batch(0);
      const at::Tensor loss = model.loss(batch.words, batch.labels);
      EXPECT_EQ(loss.scalar_type(), at::kFloat);
      loss.backward();
      testing::ToyModel plain;
      plain.loss(batch.words, batch.labels).backward();
      for (const auto& parameter : sharded->parameters()) {
        if (parameter.name == "unused") continue;
        EXPECT_EQ(parameter.tile.grad().scalar_type(), at::kDouble);
        const at::Tensor expected = plain.named_parameters().find(parameter.name)->grad();
        EXPECT_TRUE(at::allclose(parameter.tile.grad(),
                                 expected.narrow(0, parameter.box.offset[0], parameter.box.size[0]), 1e-4,
                                 1e-6))
            << parameter.name;
      }
    });
  }
}

// A single rank that casts parameters holds no more of them at once than many ranks hold gathered units.
TEST(FullyShardTest, CastsAreFreedAfterTheForward) {
  testing::ToyModel model;
  const auto sharded = fully_shard(model, {comm::Communicator::single()}, model.units(), in_type(at::kFloat));
  const auto batch = testing::toy_batch(0);
  for (const bool is_last : {false, true}) {
    sharded->set_is_last_micro_batch(is_last);
    const at::Tensor loss = model.loss(batch.words, batch.labels);
    EXPECT_EQ(held_by(model), "root ");
    loss.backward();
    EXPECT_EQ(held_by(model), "");
  }
  const at::NoGradGuard no_grad;
  model.loss(batch.words, batch.labels);
  EXPECT_EQ(held_by(model), "");
}

at::Tensor gradient_of(const ShardedModel& sharded, const std::string& name) {
  for (const auto& parameter : sharded.parameters()) {
    if (parameter.name == name) return parameter.tile.grad().clone();
  }
  return {};
}

// Checks that parameters which a forward promises not to read again (nn::ForwardOnlyScope) are freed until
// the next forward, and that the gradients are the same.
void check_release(const std::shared_ptr<comm::Communicator>& world, bool shares_memory) {
  testing::ToyModel model;
  const auto sharded = fully_shard(model, {world}, model.units(), in_type(at::kFloat, at::kDouble));
  const auto batch = testing::toy_batch(0);
  const auto loss_of = [&](ToyLoss kind) { return model.loss(batch.words, batch.labels, kind); };
  loss_of(ToyLoss::Direct).backward();
  const at::Tensor want = gradient_of(*sharded, "embedding");
  ASSERT_GT(want.abs().sum().item<double>(), 0.0);

  sharded->zero_grad();
  const at::Tensor loss = loss_of(ToyLoss::ForwardOnly);
  EXPECT_EQ(held_by(model), shares_memory ? "root " : "");
  loss.backward();
  EXPECT_TRUE(at::equal(gradient_of(*sharded, "embedding"), want));
  EXPECT_EQ(held_by(model), "");

  // Forwards with and without the promise and without a graph, before any of their backwards.
  sharded->zero_grad();
  const at::Tensor promised = loss_of(ToyLoss::ForwardOnly), reading = loss_of(ToyLoss::Plain),
                   again = loss_of(ToyLoss::ForwardOnly);
  {
    const at::NoGradGuard no_grad;
    loss_of(ToyLoss::ForwardOnly);
  }
  EXPECT_EQ(held_by(model), "");
  for (const at::Tensor& one : {reading, promised, again}) one.backward();
  EXPECT_TRUE(at::allclose(gradient_of(*sharded, "embedding"), 3 * want, 1e-5, 1e-8));
  EXPECT_EQ(held_by(model), "");
}

TEST(FullyShardTest, ForwardOnlyParametersOfTheRootAreFreed) {
  comm::run_fake_ranks(1, [](const auto& world) { check_release(world, false); });
  comm::run_fake_ranks(2, [](const auto& world) { check_release(world, true); });
  // Here each rank has a machine of its own.
  comm::run_fake_ranks(
      2, [](const auto& world) { check_release(world, false); }, 1);
}

// Parameters that another forward has released are gathered again for a backward that reads them.
TEST(FullyShardTest, ABackwardFindsWhatItsForwardDidNotRelease) {
  testing::ToyModel model;
  const auto sharded =
      fully_shard(model, {comm::Communicator::single()}, model.units(), in_type(at::kFloat, at::kDouble));
  const auto batch = testing::toy_batch(0);
  model.loss(batch.words, batch.labels).backward();
  const at::Tensor want = gradient_of(*sharded, "embedding");
  sharded->zero_grad();
  const auto under = [&](const at::Tensor& named, ToyLoss kind) {
    const nn::ForwardOnlyScope scope({named});
    return model.loss(batch.words, batch.labels, kind);
  };
  const at::Tensor reading = under(model.unused, ToyLoss::Plain);
  under(model.embedding, ToyLoss::ForwardOnly);
  reading.backward();
  EXPECT_TRUE(at::equal(gradient_of(*sharded, "embedding"), want));
}

// Runs a step of `repeats` equal micro-batches and returns the tiles' gradients, in the order of
// parameters().
std::vector<at::Tensor> gradients_of(ShardedModel& sharded, testing::ToyModel& model, int repeats,
                                     ToyLoss kind = ToyLoss::Plain) {
  const auto batch = testing::toy_batch(0);
  sharded.zero_grad();
  for (int i = 0; i < repeats; ++i) {
    sharded.set_is_last_micro_batch(i + 1 == repeats);
    model.loss(batch.words, batch.labels, kind).backward();
  }
  std::vector<at::Tensor> gradients;
  for (const auto& parameter : sharded.parameters()) {
    const at::Tensor& gradient = parameter.tile.grad();
    gradients.push_back(gradient.defined() ? gradient.clone() : at::zeros_like(parameter.tile));
  }
  return gradients;
}

// If a single process sums gradients in the tile's type, all micro-batches add to one tensor, which is the
// tile's gradient at the end.
TEST(FullyShardTest, MicroBatchesOfAProcessAloneAddInPlace) {
  testing::ToyModel model;
  const auto sharded =
      fully_shard(model, {comm::Communicator::single()}, model.units(), in_type(at::kFloat, at::kDouble));
  const auto batch = testing::toy_batch(0);
  const at::Tensor& tile = sharded->parameters()[0].tile;
  ASSERT_EQ(sharded->parameters()[0].name, "embedding");
  model.loss(batch.words, batch.labels, ToyLoss::ForwardOnly).backward();
  const at::Tensor once = tile.grad().clone();
  sharded->zero_grad();
  const void* memory = nullptr;
  for (int i = 0; i < 3; ++i) {
    sharded->set_is_last_micro_batch(i == 2);
    model.loss(batch.words, batch.labels, ToyLoss::ForwardOnly).backward();
    if (i == 0) memory = model.embedding.grad().const_data_ptr();
    EXPECT_EQ(tile.grad().defined(), i == 2);
  }
  EXPECT_EQ(tile.grad().const_data_ptr(), memory);
  EXPECT_TRUE(at::allclose(tile.grad(), once * 3, 1e-12, 1e-14));
  EXPECT_NE(model.embedding.grad().unsafeGetTensorImpl(), nullptr);
  EXPECT_THROW(model.embedding.grad().sum(), Error);
}

// Gradients of units may stay in the compute type. If the step has one backward, they are rounded once, by
// the product; if it has more, they are summed in the tile's type. The root's gradients are as without this
// option.
TEST(FullyShardTest, NarrowGradientsOfAProcessAlone) {
  for (const int64_t ranks : {1, 2}) {
    comm::run_fake_ranks(ranks, [](const auto& world) {
      ShardOptions options = in_type(at::kBFloat16, at::kFloat);
      testing::ToyModel wide_model, narrow_model;
      const auto wide = fully_shard(wide_model, {world}, wide_model.units(), options);
      options.mixed_precision.keeps_narrow_gradients = true;
      const auto narrow = fully_shard(narrow_model, {world}, narrow_model.units(), options);
      const auto want = gradients_of(*wide, wide_model, 1, ToyLoss::Direct),
                 once = gradients_of(*narrow, narrow_model, 1, ToyLoss::Direct),
                 thrice = gradients_of(*narrow, narrow_model, 3, ToyLoss::Direct);
      for (size_t p = 0; p < want.size(); ++p) {
        const std::string& name = narrow->parameters()[p].name;
        const bool is_narrow = world->size() == 1 && name.starts_with("block");
        EXPECT_EQ(once[p].scalar_type(), is_narrow ? at::kBFloat16 : at::kDouble) << name;
        const at::Tensor rounded = is_narrow ? want[p].to(at::kBFloat16).to(at::kDouble) : want[p];
        EXPECT_TRUE(at::equal(once[p].to(at::kDouble), rounded)) << name;
        EXPECT_EQ(thrice[p].scalar_type(), at::kDouble);
        EXPECT_TRUE(at::equal(thrice[p], rounded * 3)) << name;
      }
    });
  }
}

// If the compute type is narrow, sums over micro-batches are still kept in the tile's type, under every
// policy: eight equal micro-batches give eight times the gradient of one, to the bit.
TEST(FullyShardTest, MicroBatchesAddUpInTheStoredType) {
  for (const bool reduce_every_backward : {false, true}) {
    comm::run_fake_ranks(2, [&](const auto& world) {
      testing::ToyModel model;
      ShardOptions options = in_type(at::kBFloat16, at::kFloat);
      options.reshard_after_forward = false;
      options.reduce_every_backward = reduce_every_backward;
      const auto sharded = fully_shard(model, {world}, model.units(), options);
      const auto once = gradients_of(*sharded, model, 1), eight_times = gradients_of(*sharded, model, 8);
      for (size_t p = 0; p < once.size(); ++p) {
        EXPECT_TRUE(at::equal(eight_times[p], once[p] * 8)) << sharded->parameters()[p].name;
      }
    });
  }
}

// A compute type that is the stored type makes no difference, also if parameters are not cut.
TEST(FullyShardTest, MicroBatchesAddUpWhereTheComputeTypeIsTheStoredOne) {
  for (const bool is_ddp : {false, true}) {
    comm::run_fake_ranks(2, [&](const auto& world) {
      testing::ToyModel model;
      const auto single = comm::Communicator::single();
      const ShardGroups groups = is_ddp ? ShardGroups{single, world} : ShardGroups{world, single};
      const auto sharded = fully_shard(model, groups, model.units(), in_type(at::kDouble));
      const auto once = gradients_of(*sharded, model, 1), thrice = gradients_of(*sharded, model, 3);
      for (size_t p = 0; p < once.size(); ++p) {
        EXPECT_TRUE(at::allclose(thrice[p], once[p] * 3, 1e-12, 1e-14)) << sharded->parameters()[p].name;
      }
    });
  }
}

TEST(FullyShardTest, AForwardOrBackwardThatThrowsLeavesNothingBehind) {
  for (const int64_t ranks : {1, 2, 3}) {
    for (const auto& parity : testing::interruption_cases(ranks)) {
      for (const size_t failing : {0, 1, 2}) {
        comm::run_fake_ranks(ranks,
                             [&](const auto& world) { testing::check_interruption(world, parity, failing); });
      }
    }
  }
}

// The ops of a single process add to gradients that stay from micro-batch to micro-batch.
TEST(FullyShardTest, InterruptedSumsOfAProcessAlone) {
  for (auto& parity : testing::interruption_cases(1)) {
    parity.options.mixed_precision.reduce_dtype = at::kDouble;
    for (const size_t failing : {0, 1, 2}) {
      for (const ToyLoss kind : {ToyLoss::Direct, ToyLoss::ForwardOnly}) {
        testing::check_interruption(comm::Communicator::single(), parity, failing, kind);
      }
    }
  }
}

struct Scaled : torch::nn::Module {
  Scaled() { weight = register_parameter("weight", testing::toy_values({3, 4}, 0.0).to(at::kFloat)); }
  at::Tensor forward(const at::Tensor& x, const at::Tensor& scale, const at::Tensor& rows, int64_t power) {
    seen = {x.scalar_type(), scale.scalar_type(), rows.scalar_type()};
    return at::linear(x.index_select(0, rows), weight) * at::pow(scale, power);
  }
  at::Tensor weight;
  std::vector<at::ScalarType> seen;
};

TEST(FullyShardTest, InputsAreCastToTheComputeType) {
  for (const int64_t ranks : {1, 2}) {
    comm::run_fake_ranks(ranks, [](const auto& world) {
      const at::Tensor x = at::ones({2, 4}).set_requires_grad(true), scale = at::ones({1}, at::kDouble),
                       rows = at::arange(2, at::kLong);
      Scaled model, uncast;
      ShardOptions options = in_type(at::kBFloat16);
      const auto sharded = fully_shard(model, {world}, {}, options);
      const at::Tensor y = nn::call(model, x, scale, rows, int64_t{2});
      EXPECT_EQ(y.scalar_type(), at::kBFloat16);
      EXPECT_EQ(model.seen, (std::vector<at::ScalarType>{at::kBFloat16, at::kBFloat16, at::kLong}));
      y.sum().backward();
      EXPECT_EQ(x.grad().scalar_type(), at::kFloat);
      EXPECT_EQ(sharded->trained_tiles()[0].grad().scalar_type(), at::kFloat);

      options.mixed_precision.cast_forward_inputs = false;
      const auto kept = fully_shard(uncast, {world}, {}, options);
      EXPECT_THROW(nn::call(uncast, x, scale, rows, int64_t{2}), c10::Error);
      EXPECT_EQ(uncast.seen, (std::vector<at::ScalarType>{at::kFloat, at::kDouble, at::kLong}));
    });
  }
}

// Two layers that are units, each with a backward of its own, as the stages of a pipeline have.
class TwoStages : public torch::nn::Module {
 public:
  struct Stage : torch::nn::Module {
    explicit Stage(double phase) {
      weight = register_parameter("weight", testing::toy_values({kWidth, kWidth}, phase));
    }
    at::Tensor forward(const at::Tensor& x) { return ops::linear(x, weight); }
    at::Tensor weight;
  };

  TwoStages() {
    for (const char* name : {"first", "second"}) {
      stages.push_back(register_module(name, std::make_shared<Stage>(static_cast<double>(stages.size()))));
    }
  }
  at::Tensor run(size_t stage, const at::Tensor& x) {
    return nn::call_hooked(*this, x,
                           [this, stage](const at::Tensor& in) { return nn::call(*stages[stage], in); });
  }

  static constexpr int64_t kWidth = 4;
  std::vector<std::shared_ptr<Stage>> stages;
};

// Expects the gradients of `count` micro-batches with the inputs toy_values(rank) on each of two ranks.
void expect_sums(const ShardedModel& sharded, double count) {
  const std::vector<int64_t> sizes = {3, TwoStages::kWidth};
  const at::Tensor inputs = testing::toy_values(sizes, 0.0) + testing::toy_values(sizes, 1.0);
  const at::Tensor want = (count * inputs.sum(0)).expand({TwoStages::kWidth, TwoStages::kWidth});
  for (const ShardedParameter& parameter : sharded.parameters()) {
    const at::Tensor tile = parameter.tile.grad();
    EXPECT_TRUE(at::allclose(tile, want.narrow(0, 0, tile.size(0)), 1e-12, 1e-14)) << parameter.name;
  }
}

TEST(FullyShardTest, AUnitIsReducedBehindItsLastWeightGradient) {
  for (const bool is_split : {false, true}) {
    comm::run_fake_ranks(2, [is_split](const auto& world) {
      TwoStages model;
      const ShardOptions options{
          .reshard_after_forward = false, .reduce_every_backward = false, .average_gradients = false};
      const auto sharded = fully_shard(model, {world}, {model.stages[0], model.stages[1]}, options);
      sharded->set_is_last_micro_batch(false);
      const at::Tensor x = testing::toy_values({3, TwoStages::kWidth}, static_cast<double>(world->rank()));
      // Counts reduced units: in a reduction over two ranks each rank sends half of a unit's bytes.
      const auto num_sent = [&world] {
        return world->traffic().bytes_sent / (TwoStages::kWidth * TwoStages::kWidth * 8 / 2);
      };
      const auto backward = [&](size_t stage, bool is_last) {
        const at::Tensor y = model.run(stage, x);
        const int64_t before = num_sent();
        ops::DeferredGradients later;
        {
          std::optional<ops::DeferGradientsScope> scope;
          if (is_split) scope.emplace(&later);
          sharded->set_is_last_of_units(is_last);
          y.sum().backward();
        }
        EXPECT_EQ(num_sent() - before, is_last && !is_split ? 1 : 0);
        later.run();
        EXPECT_EQ(num_sent() - before, is_last ? 1 : 0);
      };
      backward(1, false);
      backward(0, false);
      backward(1, true);
      backward(0, true);
      const int64_t before = num_sent();
      sharded->reduce_gradients();
      EXPECT_EQ(num_sent(), before);

      expect_sums(*sharded, 2);
    });
  }
}

// The weight gradients of several micro-batches come one after the other, after all of their backwards. All
// of them count, under every policy.
TEST(FullyShardTest, WeightGradientsMayComeLate) {
  for (const bool reduce_every_backward : {false, true}) {
    comm::run_fake_ranks(2, [reduce_every_backward](const auto& world) {
      TwoStages model;
      const ShardOptions options{.reshard_after_forward = false,
                                 .reduce_every_backward = reduce_every_backward,
                                 .average_gradients = false};
      const auto sharded = fully_shard(model, {world}, {model.stages[0], model.stages[1]}, options);
      sharded->set_is_last_micro_batch(false);
      const at::Tensor x = testing::toy_values({3, TwoStages::kWidth}, static_cast<double>(world->rank()));
      std::vector<ops::DeferredGradients> later(6);
      for (size_t i = 0; i < later.size(); ++i) {
        const at::Tensor y = model.run(i % 2, x);
        const ops::DeferGradientsScope scope(&later[i]);
        sharded->set_is_last_of_units(i >= 4);
        y.sum().backward();
      }
      for (ops::DeferredGradients& products : later) products.run();
      sharded->reduce_gradients();
      expect_sums(*sharded, 3);
    });
  }
}

TEST(FullyShardTest, EvaluationLeavesNothingGathered) {
  comm::run_fake_ranks(2, [](const auto& world) {
    testing::ToyModel model;
    const auto sharded = fully_shard(model, {world}, model.units());
    const auto batch = testing::toy_batch(0);
    double once = 0;
    {
      const at::NoGradGuard no_grad;
      once = model.loss(batch.words, batch.labels).template item<double>();
      EXPECT_EQ(model.embedding.storage().nbytes(), 0u);
      sharded->unshard();
      EXPECT_EQ(model.loss(batch.words, batch.labels).template item<double>(), once);
      EXPECT_GT(model.blocks[1]->up.storage().nbytes(), 0u);
      sharded->reshard();
      EXPECT_EQ(model.blocks[1]->up.storage().nbytes(), 0u);
    }
    testing::ToyModel plain;
    EXPECT_NEAR(plain.loss(batch.words, batch.labels).template item<double>(), once, 1e-12);
  });
}

}  // namespace
}  // namespace tessera::parallel
