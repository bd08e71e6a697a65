// A rank whose other ranks do not exist.
#include "tessera/comm/dry_backend.h"

#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace tessera::comm {
namespace {

at::Tensor exchanged(int64_t rank, const std::vector<int64_t>& output_counts,
                     const std::vector<int64_t>& input_counts) {
  const auto world = make_dry_world(rank, std::ssize(input_counts), /*shares_memory=*/false);
  int64_t outputs = 0, inputs = 0;
  for (const int64_t count : output_counts) outputs += count;
  for (const int64_t count : input_counts) inputs += count;
  const at::Tensor output = at::full({outputs}, -1, at::kLong);
  world->all_to_all_v(output, at::arange(inputs), output_counts, input_counts, false, {});
  return output;
}

// Every rank sends to this one what this one sends to itself, also where ranks get parts of other sizes.
TEST(DryBackend, AllToAllGivesWhatThisRankSends) {
  EXPECT_TRUE(at::equal(exchanged(1, {2, 2}, {2, 2}), at::tensor({2, 3, 2, 3})));
  EXPECT_TRUE(at::equal(exchanged(0, {3, 3}, {3, 2}), at::tensor({0, 1, 2, 0, 1, 2})));
  EXPECT_TRUE(at::equal(exchanged(1, {2, 2}, {3, 2}), at::tensor({3, 4, 3, 4})));
  const at::Tensor even = at::full({4}, -1, at::kLong);
  make_dry_world(1, 2, /*shares_memory=*/false)->all_to_all_single(even, at::arange(4));
  EXPECT_TRUE(at::equal(even, at::tensor({2, 3, 2, 3})));
  EXPECT_TRUE(at::equal(exchanged(2, {1, 1, 1}, {3, 2, 1}), at::tensor({5, 5, 5})));
}

}  // namespace
}  // namespace tessera::comm
