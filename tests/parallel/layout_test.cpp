#include "tessera/parallel/layout.h"

#include <random>

#include <gtest/gtest.h>

#include "tests/testing/random.h"

namespace tessera::parallel {
namespace {

// Returns the coordinates of every rank of a layout.
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

// Returns how many ranks hold each element, by walking the contiguous runs of their boxes.
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

TEST(LayoutTest, PiecesAreAsEvenAsTheyCanBe) {
  EXPECT_EQ(piece_of(7, 3, 0), (Piece{0, 3}));
  EXPECT_EQ(piece_of(7, 3, 2), (Piece{5, 2}));
  EXPECT_EQ(piece_of(5, 4, 3), (Piece{4, 1}));
  EXPECT_EQ(piece_of(0, 3, 1).size, 0);
  EXPECT_EQ(piece_of(2, 4, 3), (Piece{2, 0}));
}

TEST(LayoutTest, CutsFallOnUnits) {
  // The sizes are those of nine heads of 64 that share three key/value heads.
  EXPECT_EQ(piece_of(576, 2, 0, 192), (Piece{0, 384}));
  EXPECT_EQ(piece_of(576, 2, 1, 192), (Piece{384, 192}));
  EXPECT_EQ(piece_of(192, 2, 1, 64), (Piece{128, 64}));
  EXPECT_EQ(piece_of(192, 4, 3, 64).size, 0);
  EXPECT_EQ(piece_of(10, 3, 2, 4), (Piece{8, 2}));  // the last unit is incomplete
}

TEST(LayoutTest, AnAxisCutsWhatTheOthersLeave) {
  const Layout tp({6, 8}, DType::F32, {{"tp", 2, Placement::shard(0, 2)}});
  const Layout both = tp.with({"fsdp", 3, Placement::shard(0)});
  EXPECT_EQ(both.local_box({1, 0}), (Box{{4, 0}, {1, 8}}));
  EXPECT_EQ(both.local_box({0, 2}), (Box{{3, 0}, {1, 8}}));
  EXPECT_EQ(both.first_axes(1), tp);
  EXPECT_EQ(relative_to(tp.local_box({1}), both.local_box({1, 1})), (Box{{1, 0}, {1, 8}}));
}

TEST(LayoutTest, EmptyTilesHoldNothing) {
  const Layout layout({2, 5}, DType::F32, {{"fsdp", 4, Placement::shard(0)}});
  EXPECT_EQ(layout.local_box({3}).numel(), 0);
  EXPECT_TRUE(contiguous_runs(layout.shape(), layout.local_box({3})).empty());
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
  EXPECT_EQ(runs[0].count, 12);
}

TEST(LayoutTest, HeldTensorsHaveNoRowsElsewhere) {
  const Layout pp({6, 4}, DType::F32, {{"pp", 3, Placement::held_by({0, 2})}});
  EXPECT_EQ(pp.local_box({0}), (Box{{0, 0}, {6, 4}}));
  EXPECT_EQ(pp.local_box({1}), (Box{{0, 0}, {0, 4}}));
  EXPECT_EQ(pp.num_replicas(), 2);
  // The next axis cuts the parts that the first one leaves.
  const Layout both = pp.with({"fsdp", 4, Placement::shard(0)});
  EXPECT_EQ(both.local_box({2, 3}), (Box{{5, 0}, {1, 4}}));
  EXPECT_EQ(both.local_box({1, 0}).numel(), 0);
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
  testing::Random drawn;
  std::mt19937_64& random = drawn.engine();
  const auto below = [&](int bound) { return static_cast<int64_t>(random() % bound); };
  for (int round = 0; round < 300; ++round) {
    std::vector<int64_t> shape;
    for (int64_t d = 0, rank = 1 + below(3); d < rank; ++d) shape.push_back(below(8));
    std::vector<AxisPlacement> axes;
    for (int64_t a = 0, count = below(4); a < count; ++a) {
      const int64_t size = 1 + below(4), kind = below(4);
      const Placement placement = kind == 0 ? Placement::replicate()
                                  : kind == 1
                                      ? Placement::held_by({below(static_cast<int>(size))})
                                      : Placement::shard(below(static_cast<int>(shape.size())), 1 + below(3));
      axes.push_back({"axis" + std::to_string(a), size, placement});
    }
    const Layout layout(shape, DType::F32, axes);
    for (const int64_t count : coverage(layout)) ASSERT_EQ(count, layout.num_replicas());
  }
}

}  // namespace
}  // namespace tessera::parallel
