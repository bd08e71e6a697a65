// Tests that a user's own module as a pipeline, also with full sharding, equals one process.
#include "tessera/parallel/pipeline/pipeline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/comm/fake/fake_backend.h"
#include "tessera/nn/linear.h"
#include "tessera/parallel/box_part.h"
#include "tessera/parallel/device_mesh.h"
#include "tessera/parallel/tensor_parallel/tensor_parallel.h"

#include "tests/parallel/parity.h"

namespace tessera::parallel {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kMicroBatches = 5;

// The toy model, which can be run by ranges of its blocks. Its embedding is also its output projection, and
// one of its parameters is unused.
class ToyStages : public testing::ToyModel {
 public:
  PipelineParts parts() const { return {{embedding}, units(), {head}}; }

  at::Tensor run_blocks(const testing::ToyBatch& batch, int64_t begin, int64_t end,
                        const at::Tensor& hidden) {
    return nn::call_hooked(*this, begin == 0 ? batch.words : hidden,
                           [this, batch, begin, end](const at::Tensor& input) {
                             at::Tensor x = begin == 0 ? at::embedding(embedding, input) : input;
                             for (int64_t i = begin; i < end; ++i) x = nn::call(*blocks[i], x);
                             if (end < static_cast<int64_t>(blocks.size())) return x;
                             return at::nll_loss(at::log_softmax(at::linear(x, head), -1), batch.labels, {},
                                                 at::Reduction::Sum, -100);
                           });
  }
};

struct PipelineCase {
  int64_t pp = 1;
  PipelineOptions options;
  ShardOptions shard;
  bool freeze_some = false;
  bool is_on_meta = false;  // whether the model is on the meta device when it is cut
};

void expect_gradients(const ShardedModel& sharded, const testing::Reference& reference, int step) {
  for (const ShardedParameter& parameter : sharded.parameters()) {
    const auto expected = reference.gradients.find(std::to_string(step) + parameter.name);
    const at::Tensor mine = parameter.tile.grad();
    if (expected == reference.gradients.end()) {
      EXPECT_TRUE(!mine.defined() || mine.eq(0).all().item<bool>()) << parameter.name;
      continue;
    }
    ASSERT_TRUE(mine.defined()) << parameter.name;
    const at::Tensor theirs = box_part(expected->second, parameter.box);
    ASSERT_EQ(mine.sizes(), theirs.sizes()) << parameter.name;
    EXPECT_LE((mine - theirs).norm().item<double>(), 1e-10 * expected->second.norm().item<double>())
        << parameter.name << ", step " << step;
  }
}

void check(const std::shared_ptr<comm::Communicator>& world, const PipelineCase& layout) {
  const DeviceMesh mesh(world, {.pp = layout.pp});
  const int64_t readers = mesh.size(kAxisDp);
  const testing::Reference reference =
      testing::one_process({.freeze_some = layout.freeze_some}, readers * kMicroBatches);
  const ToyStages original;
  ToyStages model;
  if (layout.freeze_some) testing::freeze_some_parameters(model);
  if (layout.is_on_meta) testing::move_to_meta(model);

  ShardOptions shard = layout.shard;
  shard.average_gradients = false;
  const Pipeline pipelined =
      pipeline(model, model.parts(), {kAxisPp, mesh.group(kAxisPp)}, shard.layouts, layout.options);
  const auto sharded = fully_shard(model, {mesh.group(kAxisFsdp)}, model.units(), shard);
  sharded->materialize([&](const ShardedParameter& own) {
    const at::Tensor value = *original.named_parameters().find(own.name);
    own.tile.detach().copy_(box_part(value.detach(), own.box));
  });

  for (int step = 0; step < 2; ++step) {
    const auto batch = [&](int64_t m) {
      return testing::toy_batch(m * readers + mesh.coordinate(kAxisDp) + step);
    };
    Pipeline::Pass pass{.num_micro_batches = kMicroBatches};
    pass.run_blocks = [&](int64_t m, auto... rest) { return model.run_blocks(batch(m), rest...); };
    pass.make_hidden = [&](int64_t m) {
      return at::empty({batch(m).words.size(0), testing::ToyModel::kWidth}, at::kDouble);
    };
    const auto expect_loss = [&](const at::Tensor& loss) {
      mesh.group(kAxisDp)->all_reduce(loss);
      EXPECT_NEAR(loss.item<double>(), reference.losses[step], 1e-10 * std::abs(reference.losses[step]));
    };
    {
      const at::NoGradGuard no_grad;
      expect_loss(pipelined.run(*sharded, pass));
    }
    sharded->zero_grad();
    expect_loss(pipelined.run(*sharded, pass));
    expect_gradients(*sharded, reference, step);
    const at::NoGradGuard no_grad;
    for (const ShardedParameter& parameter : sharded->parameters()) {
      if (parameter.tile.grad().defined()) {
        parameter.tile.detach().add_(parameter.tile.grad(), -testing::kToyRate);
      }
    }
  }
}

constexpr PipelineKind kKinds[] = {PipelineKind::OneFOneB, PipelineKind::GPipe, PipelineKind::Interleaved,
                                   PipelineKind::ZeroBubble};

TEST(PipelineTest, ModulesOnUpTo6RanksEqualOneProcess) {
  int turn = 0;
  for (const int64_t ranks : {1, 2, 3, 4, 6}) {
    for (const int64_t pp : {1, 2, 3}) {
      if (ranks % pp != 0) continue;
      for (const PipelineKind kind : kKinds) {
        PipelineCase layout{.pp = pp, .options = {.kind = kind}};
        ++turn;
        layout.shard.reshard_after_forward = turn % 2 == 0;
        layout.shard.reduce_every_backward = turn % 3 == 0;
        layout.freeze_some = turn % 5 < 2;
        layout.is_on_meta = turn % 4 < 2;
        SCOPED_TRACE(std::to_string(ranks) + " ranks, pp " + std::to_string(pp) + ", turn " +
                     std::to_string(turn));
        comm::run_fake_ranks(ranks, [&](const auto& world) { check(world, layout); });
        if (::testing::Test::HasFailure()) return;
      }
    }
  }
}

TEST(PipelineTest, SeveralStagesOfARankAndASplitOfOnesOwn) {
  comm::run_fake_ranks(1, [](const auto& world) {
    check(world, {.options = {.kind = PipelineKind::Interleaved, .stages_per_rank = 3}});
  });
  for (const auto& split : {std::vector<int64_t>{1, 2}, std::vector<int64_t>{2, 1}}) {
    comm::run_fake_ranks(4, [&](const auto& world) { check(world, {.pp = 2, .options = {.split = split}}); });
  }
}

TEST(PipelineTest, ARankHoldsItsStage) {
  comm::run_fake_ranks(3, [](const auto& world) {
    ToyStages model;
    ShardOptions options;
    const Pipeline pipelined = pipeline(model, model.parts(), {kAxisPp, world}, options.layouts);
    EXPECT_EQ(pipelined.plan().bounds, (std::vector<int64_t>{0, 1, 2, 3}));
    const auto sharded = fully_shard(model, {comm::Communicator::single()}, model.units(), options);
    for (const ShardedParameter& parameter : sharded->parameters()) {
      const int64_t rank = world->rank();
      const bool is_held = parameter.name.starts_with("block" + std::to_string(rank)) ||
                           (parameter.name == "embedding" && rank != 1) ||
                           (parameter.name == "unused" && rank == 0);
      EXPECT_EQ(parameter.tile.numel() > 0, is_held) << parameter.name << " on rank " << rank;
      EXPECT_TRUE(
          at::equal(sharded->full_tensor(parameter), testing::ToyModel().named_parameters()[parameter.name]))
          << parameter.name;
    }
  });
}

// The two ranks along tp hold four and two rows of every layer.
TEST(PipelineTest, RanksWithUnevenPartsOfTheLayersDealThemAlike) {
  comm::run_fake_ranks(4, [](const auto& world) {
    const DeviceMesh mesh(world, {.tp = 2, .pp = 2});
    torch::nn::Module net;
    PipelineParts parts;
    TensorParallelPlan plan;
    for (int i = 0; i < 6; ++i) {
      const std::string name = "block" + std::to_string(i);
      parts.blocks.push_back(
          net.register_module(name, std::make_shared<nn::Linear>(4, 6, true, at::kDouble)));
      plan.layers.emplace_back(name, LayerStyle::colwise(2));
    }
    parts.last = {net.register_parameter("head", at::zeros({10, 4}, at::kDouble))};
    ParameterLayouts layouts = tensor_parallel(net, plan, {kAxisTp, mesh.group(kAxisTp)});
    const Pipeline pipelined = pipeline(net, parts, {kAxisPp, mesh.group(kAxisPp)}, layouts);
    EXPECT_EQ(pipelined.plan().bounds, (std::vector<int64_t>{0, 4, 6}));
  });
}

std::string refusal(int64_t num_ranks, const PipelineOptions& options) {
  const ToyStages model;
  try {
    plan_pipeline(model, model.parts(), product_costs(model.parts()), num_ranks, options);
  } catch (const Error& error) {
    EXPECT_EQ(exit_code(error.kind()), 2);
    return error.what();
  }
  ADD_FAILURE() << "no error";
  return "";
}

TEST(PipelineTest, WhatCannotBeCutIsRefusedWithWhatCan) {
  EXPECT_THAT(refusal(4, {}), HasSubstr("got 4 ranks and 3 layers, need at least one layer per stage. hint: "
                                        "pipeline_parallel_size: 3"));
  for (const auto& split : {std::vector<int64_t>{1, 1}, {3, 0}, {1, 1, 1}, {-1, 4}, {3}}) {
    EXPECT_THAT(refusal(2, {.split = split}),
                HasSubstr("need 2 numbers from 1, one for each stage, that add up to the 3 layers. hint: a "
                          "split by work would be ["));
  }
}

}  // namespace
}  // namespace tessera::parallel
