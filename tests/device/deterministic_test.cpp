#include "tessera/device/deterministic.h"

#include <cmath>
#include <cstdlib>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tessera/device/device.h"

namespace tessera {
namespace {

TEST(DeterministicTest, LibTorchAndCublasAreToldOnce) {
  ::unsetenv("CUBLAS_WORKSPACE_CONFIG");
  const at::Context& context = at::globalContext();
  EXPECT_FALSE(context.deterministicAlgorithms());
  compute_deterministically();
  EXPECT_TRUE(context.deterministicAlgorithms());
  EXPECT_FALSE(context.deterministicAlgorithmsWarnOnly()) << "what cannot be repeated throws";
  EXPECT_FALSE(context.deterministicFillUninitializedMemory());
  EXPECT_TRUE(context.deterministicCuDNN());
  EXPECT_FALSE(context.benchmarkCuDNN());
  EXPECT_STREQ(std::getenv("CUBLAS_WORKSPACE_CONFIG"), ":4096:8");
  ::setenv("CUBLAS_WORKSPACE_CONFIG", ":16:8", 1);
  compute_deterministically();
  EXPECT_STREQ(std::getenv("CUBLAS_WORKSPACE_CONFIG"), ":16:8") << "the user's word stays";
}

// The operations of training that add into rows by index have a deterministic implementation on every device.
TEST(DeterministicTest, SumsIntoRowsGoOn) {
  compute_deterministically();
  const at::Tensor ids = at::arange(1000, on_host(at::kLong)).remainder(7);
  const at::Tensor rows = at::linspace(0.1, 1.0, 1000 * 3, on_host(at::kFloat)).view({1000, 3});
  const auto sum = [&] {
    at::Tensor to = at::zeros({7, 3}, on_host(at::kFloat));
    to.index_add_(0, ids, rows);
    return to + at::embedding_dense_backward(rows, ids, 7, -1, false);
  };
  const at::Tensor first = sum();
  for (int round = 0; round < 5; ++round) EXPECT_TRUE(at::equal(sum(), first));
}

}  // namespace
}  // namespace tessera
