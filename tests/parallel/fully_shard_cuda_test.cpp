// Tests of parameters in pinned memory, for a model on a GPU.
#include <ATen/ATen.h>

#include "tessera/device/device.h"
#include "tessera/nn/call_hook.h"
#include "tessera/parallel/fully_shard.h"

#include "tests/testing/cuda_device.h"

namespace tessera::parallel {
namespace {

using testing::cuda_device;

constexpr int64_t kWidth = 1536, kRows = 64;

// A block whose copy takes about as long as the compute of a few blocks.
class Block : public torch::nn::Module {
 public:
  Block() {
    weight = register_parameter("weight", at::empty({kWidth, kWidth}, at::TensorOptions(at::kMeta)));
    bias = register_parameter("bias", at::empty({kWidth}, at::TensorOptions(at::kMeta)));
  }
  at::Tensor forward(const at::Tensor& x) { return x + at::tanh(at::linear(x, weight, bias)); }
  at::Tensor weight, bias;
};

class Model : public torch::nn::Module {
 public:
  Model() {
    for (int i = 0; i < 6; ++i)
      blocks.push_back(register_module("block" + std::to_string(i), std::make_shared<Block>()));
  }
  at::Tensor forward(const at::Tensor& x) {
    at::Tensor y = x;
    for (const auto& block : blocks) y = nn::call(*block, y);
    return y;
  }
  std::vector<std::shared_ptr<Block>> blocks;
};

// Trains some steps and returns the weights, on the host.
std::vector<at::Tensor> train(const ShardOptions& options) {
  const auto group = comm::Communicator::single(cuda_device());
  Model model;
  const auto sharded =
      fully_shard(model, {group, group, group}, {model.blocks.begin(), model.blocks.end()}, options);
  sharded->materialize([](const ShardedParameter& owned) {
    const auto host = on_host(owned.tile.scalar_type());
    owned.tile.detach().copy_(
        at::arange(owned.tile.numel(), host).sin_().mul_(0.02).view(owned.tile.sizes()));
  });
  for (int step = 0; step < 5; ++step) {
    const auto device = at::TensorOptions(cuda_device()).dtype(at::kFloat);
    const at::Tensor x = at::arange(kRows * kWidth, device).add_(step).cos_().view({kRows, kWidth});
    sharded->zero_grad();
    const at::Tensor y = nn::call(model, x.to(options.mixed_precision.param_dtype.value_or(at::kFloat)));
    y.to(at::kFloat).square().sum().backward();
    const at::NoGradGuard no_grad;
    for (const ShardedParameter& owned : sharded->parameters()) {
      const at::Tensor tile = owned.tile.detach();
      const at::Tensor here = at::empty(tile.sizes(), device);
      here.copy_(tile, /*non_blocking=*/true);
      here.add_(owned.tile.grad(), -1e-6);
      tile.copy_(here, /*non_blocking=*/true);
    }
  }
  std::vector<at::Tensor> result;
  for (const ShardedParameter& owned : sharded->parameters())
    result.push_back(sharded->full_tensor(owned).to(kHost));
  return result;
}

TEST(FullyShardCudaTest, TheBitsAreThoseOfTilesOnTheDevice) {
  TESSERA_NEEDS_CUDA();
  for (const bool is_narrow : {false, true}) {
    ShardOptions options;
    if (is_narrow) options.mixed_precision = {.param_dtype = at::kBFloat16, .reduce_dtype = at::kFloat};
    const auto expected = train(options);
    options.offload_parameters = true;
    for (int round = 0; round < 3; ++round) {
      const auto got = train(options);
      ASSERT_EQ(got.size(), expected.size());
      for (size_t i = 0; i < got.size(); ++i)
        EXPECT_TRUE(at::equal(got[i], expected[i])) << i << (is_narrow ? " in bf16" : " in float32");
    }
  }
}

}  // namespace
}  // namespace tessera::parallel
