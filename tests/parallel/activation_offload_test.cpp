// Tests of activations that go to the host and come back, on a device whose streams run late.
#include "tessera/parallel/activation_offload.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tessera/device/device.h"
#include "tessera/device/device_ledger.h"
#include "tessera/device/memory_scope.h"
#include "tessera/nn/call_hook.h"
#include "tessera/ops/mlp_activation.h"
#include "tessera/parallel/activation_checkpoint.h"

#include "tests/comm/nccl/nccl_ranks.h"

namespace tessera::parallel {
namespace {

namespace fake = testing::fake_device;

constexpr int64_t kElements = 4096, kBytes = kElements * static_cast<int64_t>(sizeof(float));

// A block that saves its input and two more tensors of the same size for its backward.
class Block : public torch::nn::Module {
 public:
  at::Tensor forward(const at::Tensor& x) {
    if (fails) throw std::runtime_error("a block that fails");
    const at::Tensor inner = ops::activate_mlp(ops::Nonlinearity::Gelu, {x * 1.5, {}});
    return ops::activate_mlp(ops::Nonlinearity::Silu, {inner, x});
  }
  bool fails = false;
};

enum class Kept { All, Inputs };

struct Model {
  std::vector<std::shared_ptr<Block>> blocks;

  Model(int64_t num_blocks, Kept kept, bool offloads) {
    for (int64_t i = 0; i < num_blocks; ++i) {
      blocks.push_back(std::make_shared<Block>());
      if (kept == Kept::Inputs) checkpoint_activations(*blocks.back());
    }
    if (offloads) offload_activations({blocks.begin(), blocks.end()}, fake::device(0), kBytes);
  }
  at::Tensor forward(at::Tensor x) {
    const MemoryScope memory(MemoryCategory::Activations);
    for (const auto& block : blocks) x = nn::call(*block, x);
    return x;
  }
};

at::Tensor input(double phase) {
  const auto options = at::TensorOptions(fake::device(0)).dtype(at::kFloat);
  return (at::arange(kElements, options) * 0.37 + phase).sin_().set_requires_grad(true);
}

// Runs two passes one after the other and returns their outputs and gradients.
std::vector<at::Tensor> run(Model& model) {
  std::vector<at::Tensor> result;
  for (const double phase : {0.0, 1.0}) {
    const at::Tensor x = input(phase);
    const at::Tensor y = model.forward(x);
    result.push_back(y.detach());
    y.sum().backward();
    result.push_back(x.grad());
  }
  for (at::Tensor& tensor : result) tensor = tensor.to(kHost);
  return result;
}

bool equal(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  for (size_t i = 0; i < a.size(); ++i) {
    if (!at::equal(a[i], b[i])) return false;
  }
  return a.size() == b.size();
}

std::vector<at::Tensor> expected(int64_t num_blocks) {
  testing::use_delays(1);
  Model model(num_blocks, Kept::All, false);
  auto result = run(model);
  EXPECT_TRUE(result[1].isfinite().all().item<bool>());
  return result;
}

TEST(ActivationOffloadTest, EveryDelayGivesTheBitsOfActivationsOnTheDevice) {
  for (const int64_t num_blocks : {1, 2, 3, 6}) {
    const auto want = expected(num_blocks);
    for (const Kept kept : {Kept::All, Kept::Inputs}) {
      for (uint64_t seed = 1; seed <= 6; ++seed) {
        testing::use_delays(seed);
        Model model(num_blocks, kept, true);
        EXPECT_TRUE(equal(want, run(model))) << num_blocks << " blocks, seed " << seed;
      }
    }
  }
  fake::synchronize();
  EXPECT_EQ(fake::fault(), "");
}

// Both compute and copies must wait for each other.
TEST(ActivationOffloadTest, ALostEventIsNoticed) {
  const auto want = expected(6);
  for (const auto lost : {fake::Lost::OfDefaultStreams, fake::Lost::OfOtherStreams}) {
    bool is_noticed = false;
    for (uint64_t seed = 1; seed <= 20 && !is_noticed; ++seed) {
      testing::use_delays(seed, lost);
      Model model(6, Kept::All, true);
      is_noticed = !equal(want, run(model));
    }
    EXPECT_TRUE(is_noticed);
  }
  testing::use_delays(1);
}

// Returns the bytes of activations on the device after a forward, and the most until the end of its backward.
std::pair<int64_t, int64_t> bytes_of(int64_t num_blocks, bool offloads) {
  testing::use_delays(1);
  const at::Tensor x = input(0.0);
  Model model(num_blocks, Kept::All, offloads);
  const DeviceLedger ledger(fake::device(0));
  const at::Tensor y = model.forward(x);
  const int64_t live = memory_ledger::live().of(MemoryCategory::Activations);
  y.sum().backward();
  return {live, memory_ledger::most().of(MemoryCategory::Activations)};
}

TEST(ActivationOffloadTest, TheDeviceHoldsTwoBlocksAtATime) {
  const auto [kept, most_kept] = bytes_of(8, false);
  EXPECT_GE(kept, 8 * 3 * kBytes);
  const auto [live, most] = bytes_of(8, true);
  const auto of_more = bytes_of(16, true);
  EXPECT_LE(live, 4 * kBytes);
  EXPECT_LE(most, most_kept / 2);
  EXPECT_EQ(of_more.first, live) << "it does not depend on the number of blocks";
  EXPECT_EQ(of_more.second, most);
}

// Activations that are dropped while they are on their way do not affect the next pass.
TEST(ActivationOffloadTest, PassesThatEndEarlyLeaveTheNextOneAlone) {
  const auto want = expected(4);
  for (const Kept kept : {Kept::All, Kept::Inputs}) {
    for (uint64_t seed = 1; seed <= 10; ++seed) {
      testing::use_delays(seed);
      Model model(4, kept, true);
      { const at::Tensor dropped = model.forward(input(2.0)); }
      EXPECT_TRUE(equal(want, run(model))) << "a forward without a backward";
      model.blocks[2]->fails = true;
      EXPECT_THROW(model.forward(input(3.0)), std::runtime_error);
      model.blocks[2]->fails = false;
      EXPECT_TRUE(equal(want, run(model))) << "a forward that fails";
      {
        // The backward ends at the third block, while the activations of the second one are on their way.
        const at::Tensor x = input(4.0);
        at::Tensor y = x, first_half;
        for (size_t i = 0; i < 4; ++i) {
          if (i == 2) {
            first_half = y;
            y = y.detach().set_requires_grad(true);
          }
          y = nn::call(*model.blocks[i], y);
        }
        y.sum().backward();
      }
      EXPECT_TRUE(equal(want, run(model))) << "a backward that ends early";
      {
        const at::NoGradGuard no_grad;
        EXPECT_TRUE(at::equal(model.forward(input(0.0)).to(kHost), want[0]));
      }
    }
  }
}

}  // namespace
}  // namespace tessera::parallel
