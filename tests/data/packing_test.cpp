#include "tessera/data/packing.h"

#include <algorithm>
#include <filesystem>
#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/core/rng.h"
#include "tessera/data/kept_plan.h"
#include "tessera/io/file.h"

#include "tests/testing/temp_folder.h"

namespace tessera::data {
namespace {

using ::testing::ElementsAre;

// Computes the bins' loads as the method is defined: each item, longest first, goes into the first bin with
// room.
std::vector<int64_t> naive_bin_loads(std::vector<int64_t> lengths, int64_t capacity) {
  std::stable_sort(lengths.begin(), lengths.end(), std::greater<>());
  std::vector<int64_t> loads;
  for (const int64_t length : lengths) {
    const auto fits =
        std::find_if(loads.begin(), loads.end(), [&](int64_t load) { return load + length <= capacity; });
    if (fits == loads.end()) {
      loads.push_back(length);
    } else {
      *fits += length;
    }
  }
  return loads;
}

std::vector<int64_t> bin_loads(const PackPlan& plan, const std::vector<int64_t>& lengths) {
  std::vector<int64_t> loads;
  for (int64_t i = 0; i < plan.size(); ++i) {
    int64_t load = 0;
    for (const int64_t item : plan.sequence(i)) load += lengths[item];
    loads.push_back(load);
  }
  return loads;
}

TEST(Packing, SmallCaseByHand) {
  const std::vector<int64_t> lengths = {4, 8, 1, 4, 2, 1};
  const PackPlan plan = pack_first_fit_decreasing(lengths, 10);
  ASSERT_EQ(plan.size(), 2);  // the bins hold 8+2 and 4+4+1+1
  EXPECT_THAT(plan.sequence(0), ElementsAre(1, 4));
  EXPECT_THAT(plan.sequence(1), ElementsAre(0, 2, 3, 5));
  EXPECT_DOUBLE_EQ(packing_efficiency(plan, lengths, 10), 1.0);
}

TEST(Packing, EqualsTheDefinitionAndConservesItems) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const CounterRng rng(seed, 1);
    const auto capacity = static_cast<int64_t>(1 + rng.below(0, 100));
    const auto count = static_cast<int64_t>(1 + rng.below(1, 300));
    std::vector<int64_t> lengths;
    for (int64_t i = 0; i < count; ++i)
      lengths.push_back(1 + static_cast<int64_t>(rng.below(100 + i, capacity)));

    const PackPlan plan = pack_first_fit_decreasing(lengths, capacity);
    EXPECT_EQ(bin_loads(plan, lengths), naive_bin_loads(lengths, capacity));
    std::vector<int64_t> items = plan.items;
    std::sort(items.begin(), items.end());
    for (int64_t i = 0; i < count; ++i) ASSERT_EQ(items[i], i);
    ASSERT_EQ(static_cast<int64_t>(items.size()), count);
    for (int64_t i = 0; i < plan.size(); ++i) {
      const auto sequence = plan.sequence(i);
      EXPECT_TRUE(std::is_sorted(sequence.begin(), sequence.end()));
    }
  }
}

TEST(Packing, GroupsDoNotMix) {
  const std::vector<int64_t> lengths = {1, 1, 1, 1, 1};
  const PackPlan plan = pack_first_fit_decreasing(lengths, 10, 2);
  ASSERT_EQ(plan.size(), 3);
  EXPECT_THAT(plan.sequence(1), ElementsAre(2, 3));
  EXPECT_THAT(plan.sequence(2), ElementsAre(4));
}

TEST(Packing, ManyItemsAreQuick) {
  const CounterRng rng(7, 2);
  std::vector<int64_t> lengths;
  for (uint64_t i = 0; i < 200'000; ++i) lengths.push_back(1 + static_cast<int64_t>(rng.below(i, 2048)));
  const PackPlan plan = pack_first_fit_decreasing(lengths, 2048);
  EXPECT_GT(packing_efficiency(plan, lengths, 2048), 0.99);
}

TEST(Packing, NothingIsAnEmptyPlan) {
  EXPECT_EQ(pack_first_fit_decreasing({}, 10).size(), 0);
  EXPECT_EQ(pack_one_each(0).size(), 0);
  EXPECT_DOUBLE_EQ(packing_efficiency(PackPlan{}, {}, 10), 0.0);
}

TEST(Packing, InOrderFillsOneSequenceAfterTheOther) {
  const std::vector<int64_t> lengths = {4, 4, 3, 8, 1, 9, 10};
  const PackPlan plan = pack_in_order(lengths, 10);
  EXPECT_THAT(plan.items, ElementsAre(0, 1, 2, 3, 4, 5, 6));
  EXPECT_THAT(plan.offsets, ElementsAre(0, 2, 3, 5, 6, 7));
  EXPECT_EQ(pack_in_order({}, 10).size(), 0);
}

TEST(KeptPlan, IsMadeOnceAndOnlyOfTheSameItems) {
  const testing::TempFolder folder;
  const std::vector<int64_t> lengths = {3, 5, 2, 7, 1, 4};
  int made = 0;
  const auto keep = [&](const std::vector<int64_t>& of, int64_t capacity, const std::string& way = "way") {
    return kept_plan(folder / "new", way, of, capacity, [&] {
      ++made;
      return pack_first_fit_decreasing(of, capacity);
    });
  };
  const PackPlan first = keep(lengths, 8), second = keep(lengths, 8);
  EXPECT_EQ(made, 1);
  EXPECT_EQ(first.offsets, second.offsets);
  EXPECT_EQ(first.items, second.items);
  keep({3, 5, 2, 7, 4, 1}, 8);
  keep(lengths, 9);
  keep(lengths, 8, "another");
  EXPECT_EQ(made, 4);

  // A file with any byte changed, or cut to any length, gives the same plan or is made again.
  std::string path;
  for (const auto& entry : std::filesystem::directory_iterator(folder / "new")) {
    std::filesystem::remove(entry.path());
  }
  keep(lengths, 8);
  for (const auto& entry : std::filesystem::directory_iterator(folder / "new")) path = entry.path();
  const std::string sound = io::read_file(path, 1 << 20);
  for (size_t at = 0; at < sound.size(); ++at) {
    std::string damaged = sound;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x81);
    io::write_file_atomic(path, damaged);
    EXPECT_EQ(keep(lengths, 8).items, first.items) << at;
    io::write_file_atomic(path, sound.substr(0, at));
    EXPECT_EQ(keep(lengths, 8).items, first.items) << at;
  }
  // The plan is made if there is no folder to keep it in.
  made = 0;
  EXPECT_EQ(kept_plan("", "way", lengths, 8, [&] { return pack_first_fit_decreasing(lengths, 8); }).items,
            first.items);
  io::write_file_atomic(folder / "file", "x");
  EXPECT_EQ(
      kept_plan(folder / "file", "way", lengths, 8, [&] { return pack_first_fit_decreasing(lengths, 8); })
          .items,
      first.items);
}

TEST(KeptMarks, AreFoundOnceAndOnlyForTheSameRows) {
  const testing::TempFolder folder;
  const std::vector<uint8_t> marks = {0, 1, 0, 2};
  int made = 0;
  const auto keep = [&](const std::vector<uint64_t>& rows, const std::string& way = "way") {
    return kept_marks(folder / "new", way, rows, [&] {
      ++made;
      return marks;
    });
  };
  EXPECT_EQ(keep({7, 8, 9, 10}), marks);
  EXPECT_EQ(keep({7, 8, 9, 10}), marks);
  EXPECT_EQ(made, 1);
  keep({7, 8, 9, 11});
  keep({7, 8, 9, 10}, "another");
  EXPECT_EQ(made, 3);
  for (const auto& entry : std::filesystem::directory_iterator(folder / "new")) {
    const std::string path = entry.path();
    const std::string sound = io::read_file(path, 1 << 20);
    for (size_t at = 0; at < sound.size(); ++at) {
      std::string damaged = sound;
      damaged[at] = static_cast<char>(damaged[at] ^ 1);
      io::write_file_atomic(path, damaged);
      EXPECT_EQ(keep({7, 8, 9, 10}), marks) << at;
      io::write_file_atomic(path, sound.substr(0, at));
      EXPECT_EQ(keep({7, 8, 9, 10}), marks) << at;
    }
  }
  EXPECT_EQ(kept_marks("", "way", std::vector<uint64_t>{1}, [] { return std::vector<uint8_t>{2}; }).at(0), 2);
}

}  // namespace
}  // namespace tessera::data
