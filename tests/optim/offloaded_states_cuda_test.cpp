// Tests of optimizer states in pinned memory, for tiles on a GPU.
#include <ATen/ATen.h>

#include "tessera/optim/optimizer.h"

#include "tests/testing/cuda_device.h"

namespace tessera::optim {
namespace {

using testing::cuda_device;

// Trains some steps and returns weights and states, on the host.
std::vector<at::Tensor> train(int64_t chunk_elements, bool has_bf16_states) {
  const auto options = at::TensorOptions(cuda_device()).dtype(at::kFloat);
  std::vector<OptimizedTile> tiles;
  for (const int64_t size : {1'000'003, 17, 300'000})
    tiles.push_back(
        {"w" + std::to_string(size), at::arange(size, options).sin_().set_requires_grad(true), 0.1});
  const auto optimizer = make_adamw(
      tiles, {.offload_chunk_elements = chunk_elements, .has_bf16_states = has_bf16_states, .seed = 2});
  for (int step = 1; step <= 5; ++step) {
    for (const OptimizedTile& tile : tiles)
      tile.tile.mutable_grad() = at::arange(tile.tile.numel(), options).mul_(0.3 * step).cos_();
    optimizer->step(1e-2, 0.5);
  }
  std::vector<at::Tensor> result;
  for (const OptimizedTile& tile : tiles) result.push_back(tile.tile.detach().to(kHost));
  for (const auto& state : optimizer->states()) result.push_back(state.get().to(kHost).clone());
  return result;
}

TEST(OffloadedStatesCudaTest, TheBitsAreThoseOfStatesOnTheDevice) {
  TESSERA_NEEDS_CUDA();
  for (const bool has_bf16_states : {false, true}) {
    const auto expected = train(0, has_bf16_states);
    for (const int64_t chunk_elements : {1 << 12, 1 << 18, 1 << 22}) {
      for (int round = 0; round < 3; ++round) {
        const auto got = train(chunk_elements, has_bf16_states);
        ASSERT_EQ(got.size(), expected.size());
        for (size_t i = 0; i < got.size(); ++i)
          EXPECT_TRUE(at::equal(got[i], expected[i])) << i << " of chunks of " << chunk_elements;
      }
    }
  }
}

}  // namespace
}  // namespace tessera::optim
