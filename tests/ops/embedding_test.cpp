#include "tessera/ops/embedding.h"

#include <gtest/gtest.h>

#include "tessera/ops/direct_gradient.h"

#include "tests/testing/gradcheck.h"

namespace tessera::ops {
namespace {

using namespace checks;

TEST(EmbeddingTest, PartsAddUpToTheWholeTable) {
  const at::Tensor table = trained(random_tensor({11, 4}, 1));
  const at::Tensor ids = at::tensor({3, 0, 10, 3, 7, 6}, at::kLong);
  const at::Tensor whole = ops::embedding(table, ids);
  const at::Tensor wanted = torch::autograd::grad({whole}, {table}, {direction_of(whole)})[0];
  for (const std::vector<int64_t>& bounds :
       std::vector<std::vector<int64_t>>{{0, 11}, {0, 7, 11}, {0, 1, 1, 4, 11}}) {
    at::Tensor sum = at::zeros_like(whole);
    std::vector<at::Tensor> gradients;
    for (size_t part = 0; part + 1 < bounds.size(); ++part) {
      const at::Tensor rows =
          trained(table.detach().narrow(0, bounds[part], bounds[part + 1] - bounds[part]));
      const at::Tensor found = embedding_part(rows, bounds[part], ids);
      sum = sum + found.detach();
      gradients.push_back(torch::autograd::grad({found}, {rows}, {direction_of(whole)})[0]);
    }
    EXPECT_TRUE(at::equal(sum, whole));
    EXPECT_TRUE(at::equal(at::cat(gradients), wanted));
  }
}

TEST(EmbeddingTest, AFixedRowGetsNoGradient) {
  const at::Tensor ids = at::tensor({3, 0, 5, 3, 5}, at::kLong);
  for (const bool is_direct : {false, true}) {
    for (const int64_t first : {0, 2}) {
      const at::Tensor table = trained(random_tensor({6, 4}, 1));
      if (is_direct) accumulate_directly(table, at::kDouble);
      const auto gradient_with = [&](int64_t fixed) {
        table.mutable_grad().reset();
        const at::Tensor y = first == 0 ? ops::embedding(table, ids, fixed)
                                        : embedding_part(table, first, ids + first, fixed + first);
        y.backward(direction_of(y));
        return table.grad().clone();
      };
      const at::Tensor fixed = gradient_with(3);
      at::Tensor wanted = gradient_with(1);
      EXPECT_GT(wanted[3].abs().min().item<double>(), 0.0);
      wanted[3].zero_();
      EXPECT_TRUE(at::equal(fixed, wanted));
    }
  }
}

}  // namespace
}  // namespace tessera::ops
