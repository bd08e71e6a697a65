#include "tessera/optim/optimizer.h"

#include <cmath>
#include <functional>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tessera/comm/fake/fake_backend.h"
#include "tessera/core/error.h"
#include "tessera/device/device.h"
#include "tessera/optim/gradient_norm.h"

namespace tessera::optim {
namespace {

// Computes algorithm 2 of the AdamW paper on one number.
double adamw_by_hand(double value, const std::vector<double>& gradients, double lr, double decay) {
  double m = 0, v = 0;
  for (size_t t = 1; t <= gradients.size(); ++t) {
    const double g = gradients[t - 1];
    m = 0.9 * m + 0.1 * g;
    v = 0.999 * v + 0.001 * g * g;
    const double m_hat = m / (1 - std::pow(0.9, t)), v_hat = v / (1 - std::pow(0.999, t));
    value = value - lr * decay * value - lr * m_hat / (std::sqrt(v_hat) + 1e-8);
  }
  return value;
}

TEST(OptimizerTest, AdamWFollowsThePaper) {
  for (const double decay : {0.0, 0.1}) {
    at::Tensor tile = at::full({3}, 0.7, at::kDouble).set_requires_grad(true);
    const auto optimizer = make_adamw({{"w", tile, decay}}, {});
    const std::vector<double> gradients = {0.3, -0.2, 0.9, 0.01};
    for (const double g : gradients) {
      tile.mutable_grad() = at::full({3}, 2.0 * g, at::kDouble);
      optimizer->step(1e-2, 0.5);
    }
    EXPECT_NEAR(tile[1].item<double>(), adamw_by_hand(0.7, gradients, 1e-2, decay), 1e-12);
  }
}

TEST(OptimizerTest, TilesWithoutAGradientStay) {
  at::Tensor tile = at::ones({2}).set_requires_grad(true);
  const auto optimizer = make_adamw({{"w", tile, 0.5}}, {});
  optimizer->step(0.1, 1.0);
  EXPECT_TRUE(at::equal(tile, at::ones({2})));
}

TEST(OptimizerTest, StatesHaveTheLayoutsOfTheirParametersAndGoFromOneToAnother) {
  using parallel::Placement;
  const parallel::Layout layout(
      {5, 2}, DType::F64, {{"dp_replicate", 2, Placement::replicate()}, {"fsdp", 2, Placement::shard(0)}});
  const auto make = [&](at::Tensor& tile) {
    tile = at::linspace(0.0, 1.0, 4, at::kDouble).view({2, 2}).set_requires_grad(true);
    return make_adamw({{"w", tile, 0.1, layout, {1, 1}}}, {});
  };
  const auto step = [](const at::Tensor& tile, Optimizer& optimizer, double gradient) {
    tile.mutable_grad() = at::full({2, 2}, gradient, at::kDouble);
    optimizer.step(1e-2, 1.0);
  };
  at::Tensor first, second;
  const auto one = make(first), other = make(second);
  step(first, *one, 0.5);
  step(first, *one, -0.1);

  const auto states = one->states();
  ASSERT_EQ(states.size(), 3U);
  EXPECT_EQ(states[0].name, "w/exp_avg");
  EXPECT_EQ(states[1].name, "w/exp_avg_sq");
  EXPECT_EQ(states[2].name, "w/step");
  EXPECT_EQ(states[0].layout, layout);
  EXPECT_EQ(states[1].box(), (parallel::Box{{3, 0}, {2, 2}}));
  EXPECT_EQ(states[2].layout.num_replicas(), 4);
  EXPECT_EQ(states[2].get().item<double>(), 2.0);
  for (size_t i = 0; i < states.size(); ++i) other->states()[i].set(states[i].get());
  second.detach().copy_(first);
  step(first, *one, 0.3);
  step(second, *other, 0.3);
  EXPECT_TRUE(at::equal(first, second));
  EXPECT_TRUE(make_sgd({{"w", first}})->states().empty());
}

// A rank that holds nothing of a parameter does not count its steps, so it has no state of it.
TEST(OptimizerTest, StatesAreTheHoldersAlone) {
  using parallel::Placement;
  const parallel::Layout layout({4, 2}, DType::F64, {{"pp", 2, Placement::held_by({1})}});
  for (const int64_t stage : {0, 1}) {
    const int64_t rows = stage == 1 ? 4 : 0;
    const at::Tensor tile = at::zeros({rows, 2}, at::kDouble).set_requires_grad(true);
    for (const auto& state : make_adamw({{"w", tile, 0.0, layout, {stage}}}, {})->states()) {
      EXPECT_EQ(state.box().numel() > 0, stage == 1) << state.name;
      EXPECT_EQ(state.get().sizes().vec(), state.box().size) << state.name;
    }
  }
}

// Trains a matrix that is cut by the layout, with states in bfloat16, and returns values and states after
// some steps.
std::vector<at::Tensor> train_tile(const parallel::Layout& layout, const std::vector<int64_t>& coordinates) {
  const parallel::Box box = layout.local_box(coordinates);
  const auto part = [&](const at::Tensor& whole) {
    return whole.narrow(0, box.offset[0], box.size[0]).narrow(1, box.offset[1], box.size[1]);
  };
  const auto whole = [&](double phase) {
    return (at::arange(layout.numel(), at::kDouble) * 0.7 + phase).sin().view(layout.shape()).to(at::kFloat);
  };
  at::Tensor tile = part(whole(0)).clone(at::MemoryFormat::Contiguous).set_requires_grad(true);
  const auto optimizer =
      make_adamw({{"w", tile, 0.1, layout, coordinates}}, {.has_bf16_states = true, .seed = 9});
  for (int step = 1; step <= 4; ++step) {
    tile.mutable_grad() = part(whole(step));
    optimizer->step(1e-2, 0.5);
  }
  std::vector<at::Tensor> result = {tile.detach()};
  for (const auto& state : optimizer->states()) {
    if (state.layout.shape() == layout.shape()) {
      EXPECT_EQ(state.layout.dtype(), DType::BF16) << state.name;
      EXPECT_EQ(state.get().scalar_type(), at::kBFloat16) << state.name;
      result.push_back(state.get());
    }
  }
  return result;
}

TEST(OptimizerTest, StatesInBfloat16AreThoseOfTheWholeParameter) {
  using parallel::Placement;
  const parallel::Layout whole({9, 26}, DType::F32, {});
  const std::vector<at::Tensor> want = train_tile(whole, {});
  ASSERT_EQ(want.size(), 3U);
  for (const int64_t tp_dim : {0, 1}) {
    const parallel::Layout cut =
        whole.with({"tp", 3, Placement::shard(tp_dim, 2)}).with({"fsdp", 2, Placement::shard(0)});
    for (int64_t tp = 0; tp < 3; ++tp) {
      for (int64_t fsdp = 0; fsdp < 2; ++fsdp) {
        const parallel::Box box = cut.local_box({tp, fsdp});
        const std::vector<at::Tensor> got = train_tile(cut, {tp, fsdp});
        for (size_t i = 0; i < want.size(); ++i) {
          EXPECT_TRUE(at::equal(
              got[i], want[i].narrow(0, box.offset[0], box.size[0]).narrow(1, box.offset[1], box.size[1])))
              << i << " of tp " << tp << ", fsdp " << fsdp;
        }
      }
    }
  }
}

TEST(OptimizerTest, RoundingFollowsSeedStepNameAndState) {
  const auto states = [](const std::string& name, uint64_t seed, int64_t steps_before) {
    at::Tensor tile = at::zeros({64}).set_requires_grad(true);
    const auto optimizer =
        make_adamw({{name, tile}}, {.beta1 = 0.5, .beta2 = 0.5, .has_bf16_states = true, .seed = seed});
    for (auto& state : optimizer->states()) {
      if (state.name == name + "/step") state.set(at::full({1}, static_cast<float>(steps_before)));
    }
    // Both states become a third, which lies between two bfloat16 numbers.
    tile.mutable_grad() = at::full({64}, 2.0F / 3.0F);
    for (auto& state : optimizer->states()) {
      if (state.name == name + "/exp_avg_sq") state.set(at::full({64}, 2.0F / 9.0F));
    }
    optimizer->step(1e-2, 1.0);
    return std::vector<at::Tensor>{optimizer->states()[0].get(), optimizer->states()[1].get()};
  };
  const auto first = states("w", 1, 0);
  EXPECT_TRUE(at::equal(states("w", 1, 0)[0], first[0]));
  for (const auto& other : {states("v", 1, 0), states("w", 2, 0), states("w", 1, 1)}) {
    EXPECT_FALSE(at::equal(other[0], first[0]));
    EXPECT_FALSE(at::equal(other[1], first[1]));
  }
  EXPECT_FALSE(at::equal(first[0].ge(1.0 / 3), first[1].ge(1.0 / 3)));
}

TEST(OptimizerTest, TilesWithoutValuesAreRefused) {
  const at::Tensor meta = at::empty({2}, at::TensorOptions(at::kMeta));
  for (const at::Tensor& tile : {at::Tensor(), meta}) {
    for (const auto& make : std::vector<std::function<void()>>{[&] {
                                                                 make_adamw({{"w", tile}}, {});
                                                               },
                                                               [&] {
                                                                 make_sgd({{"w", tile}});
                                                               }}) {
      try {
        make();
        FAIL() << "an optimizer of nothing";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), "E-CONFIG-ARGUMENT");
        EXPECT_NE(std::string(error.what()).find("'w'"), std::string::npos) << error.what();
      }
    }
  }
}

TEST(OptimizerTest, NormCountsEveryTileOnce) {
  comm::run_fake_ranks(3, [](const auto& world) {
    const at::Tensor whole = at::arange(10, at::kDouble);
    const at::Tensor mine = whole.narrow(0, world->rank() * 4, world->rank() == 2 ? 2 : 4);
    const GradientNorm norm =
        global_gradient_norm({{"w", mine, {world.get()}}, {"none", {}, {world.get()}}}, kHost);
    EXPECT_NEAR(norm.norm, std::sqrt(285.0), 1e-12);
    EXPECT_EQ(norm.bad_name, "");
  });
}

// There are two axes, and tiles that are cut by both, by one of them, and by none.
TEST(OptimizerTest, NormFollowsTheAxesOfEachGradient) {
  comm::run_fake_ranks(6, [](const auto& world) {
    const auto tp = world->split(world->rank() / 2, world->rank(), "tp");
    const auto fsdp = world->split(world->rank() % 2, world->rank(), "fsdp");
    const auto square = [](int64_t rank) {
      return at::full({1}, static_cast<double>(rank + 1), at::kDouble);
    };
    const GradientNorm norm = global_gradient_norm({{"both", square(world->rank()), {tp.get(), fsdp.get()}},
                                                    {"fsdp", square(fsdp->rank()), {fsdp.get()}},
                                                    {"tp", square(tp->rank()), {tp.get()}},
                                                    {"whole", square(7), {}}},
                                                   kHost);
    EXPECT_NEAR(norm.norm, std::sqrt(91.0 + 14.0 + 5.0 + 64.0), 1e-12);
  });
}

// The matrices are so large that a single float32 sum would round most of their squares away.
TEST(OptimizerTest, NormKeepsFloat32Precision) {
  const int64_t size = (int64_t{1} << 22) + 12345;
  const at::Tensor whole = at::linspace(0.001, 1.0, size, at::kFloat);
  const double want = whole.to(at::kDouble).norm().item<double>();
  comm::run_fake_ranks(2, [&](const auto& world) {
    const int64_t half = size / 2 + 1;
    const at::Tensor mine = whole.narrow(0, world->rank() * half, world->rank() == 0 ? half : size - half);
    EXPECT_NEAR(global_gradient_norm({{"w", mine, {world.get()}}}, kHost).norm, want, 5e-7 * want);
  });
  EXPECT_NEAR(global_gradient_norm({{"w", whole.reshape({-1, 1}).expand({size, 1}).t(), {}}}, kHost).norm,
              want, 5e-7 * want);
}

TEST(OptimizerTest, ABadGradientIsNamedOnEveryRank) {
  comm::run_fake_ranks(3, [](const auto& world) {
    const at::Tensor fine = at::ones({2});
    at::Tensor maybe = at::ones({2});
    if (world->rank() == 1) maybe[1] = std::nan("");
    const GradientNorm norm =
        global_gradient_norm({{"fine", fine, {world.get()}}, {"broken", maybe, {world.get()}}}, kHost);
    EXPECT_FALSE(std::isfinite(norm.norm));
    EXPECT_EQ(norm.is_bad_here, world->rank() == 1);
    EXPECT_EQ(norm.bad_name, "broken");
  });
}

TEST(OptimizerTest, ClipFactor) {
  EXPECT_DOUBLE_EQ(clip_factor(0.5, 1.0), 1.0);
  EXPECT_NEAR(clip_factor(4.0, 1.0), 0.25, 1e-6);
  EXPECT_DOUBLE_EQ(clip_factor(100.0, 0.0), 1.0);
}

}  // namespace
}  // namespace tessera::optim
