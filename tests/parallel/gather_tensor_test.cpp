#include "tessera/parallel/gather_tensor.h"

#include <random>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tessera/comm/fake/fake_backend.h"
#include "tessera/parallel/box_part.h"
#include "tessera/parallel/device_mesh.h"

#include "tests/testing/random.h"

namespace tessera::parallel {
namespace {

// Checks random shapes and cuts by two axes, also of the same dim, and with empty tiles.
void check_random_layouts(int64_t tp, int64_t fsdp) {
  const unsigned seed = testing::Random::told(testing::Random::new_seed());
  comm::run_fake_ranks(tp * fsdp, [&](const auto& world) {
    const DeviceMesh mesh(world, {.dp_shard = fsdp, .tp = tp});
    const std::vector<RankAxis> axes = {{"tp", mesh.group(kAxisTp)}, {"fsdp", mesh.group(kAxisFsdp)}};
    std::mt19937 random(seed);
    const auto below = [&](size_t bound) { return static_cast<int64_t>(random() % bound); };
    const auto held_by_some = [&] {
      std::vector<int64_t> holders;
      for (int64_t rank = 0; rank < tp; ++rank) {
        if (below(2) == 0) holders.push_back(rank);
      }
      return Placement::held_by(holders.empty() ? std::vector<int64_t>{tp - 1} : holders);
    };
    for (int round = 0; round < 60; ++round) {
      std::vector<int64_t> shape;
      for (int64_t d = 0, rank = 1 + below(3); d < rank; ++d) shape.push_back(below(9));
      const auto placement = [&] {
        return below(4) == 0 ? Placement::replicate() : Placement::shard(below(shape.size()), 1 + below(3));
      };
      Layout layout(shape, DType::F64, {{"tp", tp, below(4) == 0 ? held_by_some() : placement()}});
      layout = layout.with({"fsdp", fsdp, placement()});
      const at::Tensor whole = at::arange(layout.numel(), at::kDouble).view(shape);
      const Box box = layout.local_box({axes[0].group->rank(), axes[1].group->rank()});
      const at::Tensor gathered = gather_tensor(box_part(whole, box), layout, axes, "test");
      ASSERT_TRUE(gathered.is_contiguous());
      ASSERT_TRUE(at::equal(gathered, whole)) << "round " << round;
    }
  });
}

TEST(GatherTensorTest, TwoRanks) { check_random_layouts(1, 2); }
TEST(GatherTensorTest, ThreeRanks) { check_random_layouts(3, 1); }
TEST(GatherTensorTest, FourRanks) { check_random_layouts(2, 2); }
TEST(GatherTensorTest, SixRanks) { check_random_layouts(2, 3); }

// A tensor that is whole on every rank is still copied, since the caller may change the result.
TEST(GatherTensorTest, NeverTheTileItself) {
  const std::vector<RankAxis> axes = {{"fsdp", comm::Communicator::single()}};
  const at::Tensor tile = at::ones({2});
  gather_tensor(tile, Layout({2}, DType::F32, {{"fsdp", 1, Placement::shard(0)}}), axes, "test").zero_();
  EXPECT_EQ(tile.sum().item<double>(), 2.0);
}

}  // namespace
}  // namespace tessera::parallel
