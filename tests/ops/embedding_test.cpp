#include "tessera/ops/embedding.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace tessera::ops
