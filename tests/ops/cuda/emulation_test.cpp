// Checks that the emulation finds the mistakes that it is made to find.
#include "tests/ops/cuda/emulation.h"

#include <set>
#include <vector>

#include <gtest/gtest.h>

namespace tessera::emulation {
namespace {

// A kernel in which each thread reads the value that its neighbour has written to the block's memory.
template <bool kWaits>
void shift_by_one(int* to) {
  TESSERA_SHARED(int, values, 64);
  values[threadIdx.x] = static_cast<int>(threadIdx.x);
  if (kWaits) __syncthreads();
  to[threadIdx.x] = values[(threadIdx.x + 1) % blockDim.x];
}

int wrong_results(void (*kernel)(int*)) {
  int wrong = 0;
  for (int round = 0; round < 20; ++round) {
    std::vector<int> got(64);
    run_grid(1, 64, [&] { kernel(got.data()); });
    for (int i = 0; i < 64; ++i) wrong += got[static_cast<size_t>(i)] != (i + 1) % 64 ? 1 : 0;
  }
  return wrong;
}

TEST(Emulation, AMissingBarrierShows) {
  EXPECT_EQ(wrong_results(shift_by_one<true>), 0);
  EXPECT_GT(wrong_results(shift_by_one<false>), 0);
}

// A kernel in which a warp writes to the block's memory again, although other warps may not have read the
// first values yet.
template <bool kWaits>
void use_again(int* to) {
  TESSERA_SHARED(int, values, 64);
  int sum = 0;
  for (int round = 0; round < 2; ++round) {
    values[threadIdx.x] = static_cast<int>(threadIdx.x) + round;
    __syncthreads();
    sum += values[(threadIdx.x + 32) % 64] - round;
    if (kWaits) __syncthreads();
    sum += __shfl_xor_sync(~0u, 0, 1);
  }
  const int number = static_cast<int>(threadIdx.x);
  to[number] = sum == 2 * ((number + 32) % 64) ? (number + 1) % 64 : -1;
}

TEST(Emulation, ABarrierThatIsMissingBeforeMemoryIsUsedAgainShows) {
  EXPECT_EQ(wrong_results(use_again<true>), 0);
  EXPECT_GT(wrong_results(use_again<false>), 0);
}

TEST(Emulation, ShufflesGoToTheLaneThatIsNamed) {
  std::vector<double> got(96);
  run_grid(1, 96, [&] {
    double x = threadIdx.x;
    for (const int offset : {1, 16, 5}) x = __shfl_xor_sync(~0u, x, offset);
    got[threadIdx.x] = x;
  });
  for (unsigned i = 0; i < 96; ++i) EXPECT_EQ(got[i], (i ^ 1 ^ 16 ^ 5));
}

TEST(Emulation, EveryThreadOfEveryBlockRunsOnce) {
  std::vector<int> runs(7 * 33);
  run_grid(7, 33, [&] { ++runs[blockIdx.x * blockDim.x + threadIdx.x]; });
  EXPECT_EQ(runs, std::vector<int>(7 * 33, 1));
}

TEST(Emulation, OrdersDiffer) {
  std::set<std::vector<unsigned>> orders;
  for (int round = 0; round < 8; ++round) {
    std::vector<unsigned> order;
    run_grid(1, 32, [&] { order.push_back(threadIdx.x); });
    orders.insert(order);
  }
  EXPECT_EQ(orders.size(), 8u);
}

TEST(EmulationDeathTest, ThreadsThatWaitInVainEndTheProgram) {
  EXPECT_DEATH(run_grid(1, 32,
                        [] {
                          if (threadIdx.x == 3) return;
                          __shfl_xor_sync(~0u, 1.0f, 1);
                        }),
               "wait for each other in vain");
}

TEST(EmulationDeathTest, AccessesBehindTheEndEndTheProgram) {
  const auto write = [](size_t place) {
    std::vector<char> few(16 * sizeof(float));
    auto* data = reinterpret_cast<float*>(few.data());
    run_grid(1, 1, [&] { data[place] = 1.0f; });
  };
  write(15);
  EXPECT_DEATH(write(16), "heap-buffer-overflow");
}

TEST(EmulationDeathTest, WideAccessesOfUnalignedAddressesEndTheProgram) {
  alignas(16) char bytes[64] = {};
  const auto read = [&](int offset) {
    run_grid(1, 1, [&] { bytes[63] = static_cast<char>(reinterpret_cast<const uint4*>(bytes + offset)->x); });
  };
  read(16);
  EXPECT_DEATH(read(4), "misaligned");
}

// A store for global memory must not get an address of a block's memory, and a block's memory is aligned for
// its type alone.
TEST(EmulationDeathTest, WideStoresToABlocksMemoryEndTheProgram) {
  const auto store = [] {
    TESSERA_SHARED(uint4, values, 4);
    __stwb(&values[1], uint4{1, 2, 3, 4});
  };
  EXPECT_DEATH(run_grid(1, 1, store), "goes to a block's memory");
  const auto read = [] {
    TESSERA_SHARED(float, values, 8);
    values[0] = static_cast<float>(reinterpret_cast<const uint4*>(values)->x);
  };
  EXPECT_DEATH(run_grid(1, 1, read), "misaligned");
}

}  // namespace
}  // namespace tessera::emulation
