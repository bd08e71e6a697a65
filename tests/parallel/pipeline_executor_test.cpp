#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "tessera/comm/fake/fake_backend.h"
#include "tessera/ops/direct_gradient.h"
#include "tessera/ops/linear.h"
#include "tessera/parallel/pipeline/executor.h"
#include "tessera/parallel/pipeline/simulate.h"

namespace tessera::parallel {
namespace {

constexpr int64_t kWidth = 5;

at::Tensor values(std::vector<int64_t> sizes, int64_t seed) {
  return at::arange(c10::multiply_integers(sizes), at::kDouble).add(seed).sin().view(sizes);
}

// Toy stages: stage s computes tanh(x W_s^T), and the loss is the sum of the squares of the last stage's
// output. Micro-batches differ in length.
class ToyStages : public PipelineStage {
 public:
  explicit ToyStages(int64_t num_stages) : num_stages_(num_stages) {
    for (int64_t stage = 0; stage < num_stages; ++stage) {
      weights.push_back(values({kWidth, kWidth}, stage).requires_grad_());
      ops::accumulate_directly(weights.back(), at::kDouble);
    }
  }

  at::Tensor forward(int64_t stage, int64_t micro_batch, const at::Tensor& input) override {
    EXPECT_EQ(input.defined(), stage > 0);
    const at::Tensor x = stage == 0 ? values({2 + micro_batch, kWidth}, 100 + micro_batch) : input;
    const at::Tensor y = ops::linear(x, weights[stage]).tanh();
    return stage + 1 == num_stages_ ? y.square().sum() : y;
  }
  void backward(int64_t stage, int64_t, const at::Tensor& output, const at::Tensor& gradient) override {
    const bool had_gradient = weights[stage].grad().defined();
    torch::autograd::backward({output}, {gradient.defined() ? gradient : at::full_like(output, 0.5)});
    num_deferred += !had_gradient && !weights[stage].grad().defined() ? 1 : 0;
  }
  at::Tensor make_input(int64_t, int64_t micro_batch) const override {
    return at::empty({2 + micro_batch, kWidth}, at::kDouble);
  }
  bool needs_input_gradient(int64_t stage) const override { return stage > first_trained; }

  std::vector<at::Tensor> weights;
  int64_t first_trained = 0;
  int64_t num_deferred = 0;  // number of backwards that left their weight gradient for later

 private:
  const int64_t num_stages_;
};

struct Expected {
  double loss = 0.0;
  std::vector<at::Tensor> gradients;
};

Expected expected(int64_t num_stages, int64_t num_micro_batches) {
  ToyStages stages(num_stages);
  Expected want;
  for (int64_t m = 0; m < num_micro_batches; ++m) {
    at::Tensor x;
    for (int64_t stage = 0; stage < num_stages; ++stage) x = stages.forward(stage, m, x);
    want.loss += x.item<double>();
    (x * 0.5).backward();
  }
  for (const at::Tensor& weight : stages.weights) want.gradients.push_back(weight.grad());
  return want;
}

void check(PipelineKind kind, const ScheduleSizes& sizes) {
  const Schedule schedule = make_schedule(kind, sizes);
  SCOPED_TRACE("kind " + std::to_string(static_cast<int>(kind)) + ", ranks " +
               std::to_string(sizes.num_ranks) + ", stages " + std::to_string(sizes.stages_per_rank) +
               ", micro-batches " + std::to_string(sizes.num_micro_batches));
  const Expected want = expected(schedule.num_stages, sizes.num_micro_batches);
  comm::run_fake_ranks(sizes.num_ranks, [&](const auto& world) {
    ToyStages stages(schedule.num_stages);
    EXPECT_NEAR(run_schedule(schedule, *world, stages).template item<double>(), want.loss, 1e-12 * want.loss);
    for (int64_t stage = 0; stage < schedule.num_stages; ++stage) {
      const at::Tensor gradient = stages.weights[stage].grad();
      ASSERT_EQ(gradient.defined(), schedule.rank_of(stage) == world->rank());
      if (!gradient.defined()) continue;
      EXPECT_TRUE(at::allclose(gradient, want.gradients[stage], 1e-12, 1e-14));
    }
    EXPECT_EQ(stages.num_deferred > 0, kind == PipelineKind::ZeroBubble);
    // The forwards alone leave no gradient.
    ToyStages evaluated(schedule.num_stages);
    const at::NoGradGuard no_grad;
    EXPECT_NEAR(run_schedule(make_forward_schedule(sizes), *world, evaluated).template item<double>(),
                want.loss, 1e-12 * want.loss);
  });
}

TEST(PipelineExecutorTest, EveryScheduleEqualsOneProcess) {
  for (int64_t ranks = 1; ranks <= 4; ++ranks) {
    for (int64_t stages = 1; stages <= 3; ++stages) {
      for (const int64_t micro_batches : {1, 2, 5, 8}) {
        for (const PipelineKind kind : {PipelineKind::GPipe, PipelineKind::OneFOneB,
                                        PipelineKind::Interleaved, PipelineKind::ZeroBubble}) {
          if (kind == PipelineKind::OneFOneB && stages > 1) continue;
          check(kind, {ranks, stages, micro_batches});
        }
      }
    }
  }
}

// No gradient is sent back to a stage if nothing in it or before it trains.
TEST(PipelineExecutorTest, FrozenStagesGetNoGradients) {
  const Schedule schedule = make_schedule(PipelineKind::OneFOneB, {3, 1, 4});
  const Expected want = expected(3, 4);
  comm::run_fake_ranks(3, [&](const auto& world) {
    ToyStages stages(3);
    stages.first_trained = 1;
    stages.weights[0].requires_grad_(false);
    run_schedule(schedule, *world, stages);
    EXPECT_FALSE(stages.weights[0].grad().defined());
    if (world->rank() == 0) return;
    EXPECT_TRUE(
        at::allclose(stages.weights[world->rank()].grad(), want.gradients[world->rank()], 1e-12, 1e-14));
  });
}

}  // namespace
}  // namespace tessera::parallel
