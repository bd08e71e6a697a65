#include "tessera/parallel/layout.h"

#include <random>

#include <gtest/gtest.h>

namespace tessera::parallel {
namespace {

// Coordinates of every rank of a layout.
std::vector<std::vector<int64_t>> all_coordinates(const Layout& layout) {
  std::vector<std::vector<int64_t>> all = {{}};
  for (const AxisPlacement& axis : layout.axes()) {
    std::vector<std::vector<int64_t>> longer;
    for (const auto& prefix : all) {
      for (int64_t i = 0; i < axis.size; ++i) {
        longer.push_back(prefix);
        longer.back().push_back(i);
      }
    }
    all = std::move(longer);
  }
  return all;
}

// How many ranks hold each element, by walking the contiguous runs of their boxes.
std::vector<int64_t> coverage(const Layout& layout) {
  std::vector<int64_t> count(layout.numel(), 0);
  for (const auto& coordinates : all_coordinates(layout)) {
    const Box box = layout.local_box(coordinates);
    int64_t local = 0;
    for (const ElementRun& run : contiguous_runs(layout.shape(), box)) {
      EXPECT_EQ(run.local_begin, local);
      local += run.count;
      for (int64_t i = 0; i < run.count; ++i) ++count.at(run.global_begin + i);
    }
    EXPECT_EQ(local, box.numel());
  }
  return count;
}

TEST(LayoutTest, PiecesAreFullButForTheLastOnes) {
  EXPECT_EQ(piece_of(7, 3, 0).size, 3);
  EXPECT_EQ(piece_of(7, 3, 2).size, 1);
  EXPECT_EQ(piece_of(4, 3, 2).size, 0);  // 2 + 2 + 0
  EXPECT_EQ(piece_of(0, 3, 1).size, 0);
  EXPECT_EQ(piece_of(2, 4, 3).begin, 2);
}

TEST(LayoutTest, EmptyTilesHoldNothing) {
  const Layout layout({2, 5}, DType::F32, {{"fsdp", 4, Placement::shard(0)}});
  EXPECT_EQ(layout.local_box({3}).numel(), 0);
  EXPECT_TRUE(contiguous_runs(layout.shape(), layout.local_box({3})).empty());
  EXPECT_EQ(layout.padded_local_shape(), (std::vector<int64_t>{1, 5}));
}

TEST(LayoutTest, ColumnShardsMakeOneRunARow) {
  const Layout layout({3, 6}, DType::F32, {{"tp", 2, Placement::shard(1)}});
  const auto runs = contiguous_runs(layout.shape(), layout.local_box({1}));
  ASSERT_EQ(runs.size(), 3u);
  EXPECT_EQ(runs[1].global_begin, 9);
  EXPECT_EQ(runs[1].local_begin, 3);
  EXPECT_EQ(runs[1].count, 3);
}

TEST(LayoutTest, RowShardsAreOneRun) {
  const Layout layout({7, 3, 2}, DType::F32, {{"fsdp", 3, Placement::shard(0)}});
  const auto runs = contiguous_runs(layout.shape(), layout.local_box({1}));
  ASSERT_EQ(runs.size(), 1u);
  EXPECT_EQ(runs[0].global_begin, 18);
  EXPECT_EQ(runs[0].count, 18);
}

TEST(LayoutTest, IntersectionOfTwoLayoutsTilesTheTensor) {
  const Layout a({10, 9}, DType::F32, {{"fsdp", 3, Placement::shard(0)}});
  const Layout b({10, 9}, DType::F32, {{"tp", 2, Placement::shard(1)}, {"fsdp", 4, Placement::shard(0)}});
  int64_t total = 0;
  for (const auto& i : all_coordinates(a)) {
    for (const auto& j : all_coordinates(b)) total += intersect(a.local_box(i), b.local_box(j)).numel();
  }
  EXPECT_EQ(total, 90);
}

TEST(LayoutTest, TilesCoverEveryElementOncePerReplica) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  const auto below = [&](int bound) { return static_cast<int64_t>(random() % bound); };
  for (int round = 0; round < 300; ++round) {
    std::vector<int64_t> shape;
    for (int64_t d = 0, rank = 1 + below(3); d < rank; ++d) shape.push_back(below(8));
    std::vector<AxisPlacement> axes;
    for (int64_t a = 0, count = below(4); a < count; ++a) {
      const bool is_shard = below(3) > 0;
      axes.push_back(
          {"axis" + std::to_string(a), 1 + below(4),
           is_shard ? Placement::shard(below(static_cast<int>(shape.size()))) : Placement::replicate()});
    }
    const Layout layout(shape, DType::F32, axes);
    for (const int64_t count : coverage(layout)) ASSERT_EQ(count, layout.num_replicas());
  }
}

}  // namespace
}  // namespace tessera::parallel
