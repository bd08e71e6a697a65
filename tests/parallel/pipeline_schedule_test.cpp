#include <algorithm>
#include <random>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/core/error.h"
#include "tessera/parallel/pipeline/picture.h"
#include "tessera/parallel/pipeline/schedule.h"
#include "tessera/parallel/pipeline/simulate.h"
#include "tessera/parallel/pipeline/split_blocks.h"

#include "tests/testing/random.h"

namespace tessera::parallel {
namespace {

constexpr PipelineKind kKinds[] = {PipelineKind::GPipe, PipelineKind::OneFOneB, PipelineKind::Interleaved,
                                   PipelineKind::ZeroBubble};

template <class Body>
void for_all_small_sizes(Body&& body) {
  for (const PipelineKind kind : kKinds) {
    for (int64_t ranks = 1; ranks <= 8; ++ranks) {
      for (int64_t stages = 1; stages <= (kind == PipelineKind::OneFOneB ? 1 : 4); ++stages) {
        for (int64_t micro_batches = 1; micro_batches <= 2 * ranks + 3; ++micro_batches) {
          const ScheduleSizes sizes{ranks, stages, micro_batches};
          SCOPED_TRACE("kind " + std::to_string(static_cast<int>(kind)) + ", ranks " + std::to_string(ranks) +
                       ", stages " + std::to_string(stages) + ", micro-batches " +
                       std::to_string(micro_batches));
          body(kind, sizes);
          if (::testing::Test::HasFailure()) return;
        }
      }
    }
  }
}

TEST(PipelineScheduleTest, EverySmallOneRuns) {
  for_all_small_sizes([](PipelineKind kind, const ScheduleSizes& sizes) {
    const Schedule schedule = make_schedule(kind, sizes);
    ASSERT_EQ(find_fault(schedule), "");
    ASSERT_EQ(find_fault(make_forward_schedule(sizes)), "");
    const int64_t each = sizes.stages_per_rank * sizes.num_micro_batches;
    const size_t parts = kind == PipelineKind::ZeroBubble ? 3 : 2;
    for (const auto& actions : schedule.actions) ASSERT_EQ(actions.size(), parts * each);
    const Timeline timeline = simulate(schedule, {});
    ASSERT_GE(timeline.bubble_share, 0.0);
    // A rank alone never waits.
    ASSERT_TRUE(sizes.num_ranks > 1 || timeline.bubble_share == 0.0);
  });
}

// The bounds are those of the literature for the number of micro-batches that a rank holds at once.
TEST(PipelineScheduleTest, MicroBatchesInFlightAreBounded) {
  for_all_small_sizes([](PipelineKind kind, const ScheduleSizes& sizes) {
    const auto& [ranks, stages, micro_batches] = sizes;
    const Timeline timeline = simulate(make_schedule(kind, sizes), {});
    for (int64_t rank = 0; rank < ranks; ++rank) {
      const int64_t peak = timeline.peak_in_flight[rank], all = stages * micro_batches;
      if (kind == PipelineKind::GPipe) {
        ASSERT_EQ(peak, all);
      } else if (stages == 1 && kind == PipelineKind::ZeroBubble) {
        ASSERT_LE(peak, std::min(micro_batches, ranks));
      } else if (stages == 1) {
        ASSERT_EQ(peak, std::min(micro_batches, ranks - rank));
      } else {
        // p (1 + (p - 1) / (p v)) micro-batches of all stages of the rank, and those whose weight gradients
        // wait.
        const int64_t waiting = kind == PipelineKind::ZeroBubble ? rank : 0;
        ASSERT_LE(peak, std::min(all, 2 * (ranks - 1 - rank) + (stages - 1) * ranks + 1 + waiting));
      }
    }
  });
}

// The idle time of a rank is (p - 1) (F + B + W), divided by the number of stages of a rank if it has
// several; and (p - 1) (F + B - W) if weight gradients fill it.
TEST(PipelineScheduleTest, BubblesAreThoseOfTheLiterature) {
  for (int64_t ranks = 1; ranks <= 8; ++ranks) {
    for (int64_t rounds = 2; rounds <= 4; ++rounds) {
      const int64_t micro_batches = rounds * ranks;
      const auto idle = [&](PipelineKind kind, int64_t stages, const ActionCosts& costs) {
        const Timeline timeline = simulate(make_schedule(kind, {ranks, stages, micro_batches}), costs);
        return timeline.length - micro_batches * stages * (costs.forward + costs.of(ActionKind::Backward));
      };
      SCOPED_TRACE("ranks " + std::to_string(ranks) + ", micro-batches " + std::to_string(micro_batches));
      for (const ActionCosts& costs : {ActionCosts{1, 1, 1}, ActionCosts{3, 4, 2}, ActionCosts{2, 2, 3}}) {
        const int64_t all = costs.forward + costs.of(ActionKind::Backward);
        EXPECT_EQ(idle(PipelineKind::GPipe, 1, costs), (ranks - 1) * all);
        EXPECT_EQ(idle(PipelineKind::OneFOneB, 1, costs), (ranks - 1) * all);
        for (int64_t stages = 2; stages <= 4; ++stages) {
          // The unit is the time of a stage, of which a rank now has several.
          EXPECT_EQ(idle(PipelineKind::Interleaved, stages, costs), (ranks - 1) * all) << stages;
        }
      }
      EXPECT_EQ(idle(PipelineKind::ZeroBubble, 1, {1, 1, 1}), ranks - 1);
      EXPECT_EQ(idle(PipelineKind::ZeroBubble, 1, {4, 4, 2}), (ranks - 1) * 6);
    }
  }
}

TEST(PipelineScheduleTest, OneFOneBIsThePictureOfThePapers) {
  const Schedule schedule = make_schedule(PipelineKind::OneFOneB, {3, 1, 4});
  EXPECT_EQ(picture_of(schedule, simulate(schedule, {})),
            "rank 0 | F0 F1 F2 .  .  .  .  B0 == F3 B1 == .  B2 == .  B3 ==\n"
            "rank 1 | .  F0 F1 .  .  B0 == F2 B1 == F3 B2 == .  B3 == .  .\n"
            "rank 2 | .  .  F0 B0 == F1 B1 == F2 B2 == F3 B3 == .  .  .  .\n");
}

TEST(PipelineScheduleTest, WeightGradientsFillTheBubble) {
  const Schedule schedule = make_schedule(PipelineKind::ZeroBubble, {2, 1, 3});
  EXPECT_EQ(picture_of(schedule, simulate(schedule, {})),
            "rank 0 | F0 F1 .  B0 W0 F2 B1 W1 B2 W2\n"
            "rank 1 | .  F0 B0 F1 B1 W0 F2 B2 W1 W2\n");
}

TEST(PipelineScheduleTest, StagesOfARankAreLetters) {
  const Schedule schedule = make_schedule(PipelineKind::Interleaved, {2, 2, 2});
  EXPECT_EQ(picture_of(schedule, simulate(schedule, {})),
            "rank 0 | F0a F1a F0b F1b .   .   B0b === .   B1b === B0a === B1a ===\n"
            "rank 1 | .   F0a F1a F0b B0b === F1b B1b === B0a === B1a === .   .\n");
}

TEST(PipelineScheduleTest, SizesThatAreNoneAreRefused) {
  const auto error_of = [](PipelineKind kind, const ScheduleSizes& sizes) -> std::string {
    try {
      make_schedule(kind, sizes);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(error_of(PipelineKind::GPipe, {0, 1, 1}), ::testing::HasSubstr("ranks; got 0"));
  EXPECT_THAT(error_of(PipelineKind::GPipe, {1, 1, 0}), ::testing::HasSubstr("micro-batches; got 0"));
  EXPECT_THAT(error_of(PipelineKind::OneFOneB, {2, 2, 4}), ::testing::HasSubstr("one stage per rank; got 2"));
}

// Each fault is found and named.
TEST(PipelineScheduleTest, FaultsAreFound) {
  const Schedule good = make_schedule(PipelineKind::OneFOneB, {2, 1, 3});
  const auto fault_of = [&](auto&& change) {
    Schedule schedule = good;
    change(schedule.actions);
    return find_fault(schedule);
  };
  using Actions = std::vector<std::vector<Action>>;
  EXPECT_THAT(fault_of([](Actions& a) { a[0].pop_back(); }),
              ::testing::HasSubstr("micro-batch 2 does not pass stage 0 on its way back"));
  EXPECT_THAT(fault_of([](Actions& a) { a[1].push_back(a[1][0]); }), ::testing::HasSubstr("comes twice"));
  EXPECT_THAT(fault_of([](Actions& a) { std::swap(a[0], a[1]); }), ::testing::HasSubstr("does not belong"));
  EXPECT_THAT(fault_of([](Actions& a) { std::swap(a[1][0], a[1][1]); }),
              ::testing::HasSubstr("comes before its forward"));
  // Rank 0 runs its forwards in another order.
  EXPECT_THAT(fault_of([](Actions& a) { std::swap(a[0][0], a[0][1]); }),
              ::testing::HasSubstr("activations for stage 1 are sent in one order and received in another"));
  // Rank 0 waits for a gradient that rank 1 can only make from an output which rank 0 makes later.
  EXPECT_THAT(
      fault_of([](Actions& a) {
        a[0] = {{ActionKind::Forward, 0, 0},  {ActionKind::Backward, 0, 0}, {ActionKind::Forward, 0, 1},
                {ActionKind::Backward, 0, 1}, {ActionKind::Forward, 0, 2},  {ActionKind::Backward, 0, 2}};
        a[1] = {{ActionKind::Forward, 1, 0},  {ActionKind::Forward, 1, 1}, {ActionKind::Backward, 1, 0},
                {ActionKind::Backward, 1, 1}, {ActionKind::Forward, 1, 2}, {ActionKind::Backward, 1, 2}};
      }),
      ::testing::HasSubstr("rank 0 waits for ever for the input of the backward of micro-batch 0"));
  EXPECT_THAT(fault_of([](Actions& a) { a[0].back().kind = ActionKind::WeightGradient; }),
              ::testing::HasSubstr("comes before its input gradient"));
}

TEST(SplitBlocksTest, TheHeadCountsAsBlocks) {
  // The head is as much work as eight blocks, as in a small model with a large vocabulary.
  PartCosts costs{0.0, std::vector<double>(30, 1.0), 8.0};
  EXPECT_EQ(split_blocks(costs, 4), (std::vector<int64_t>{0, 8, 18, 28, 30}));
  EXPECT_EQ(split_blocks(costs, 2), (std::vector<int64_t>{0, 19, 30}));
  EXPECT_EQ(split_blocks({0.0, {1, 1, 1}, 100.0}, 3), (std::vector<int64_t>{0, 1, 2, 3}));
  EXPECT_EQ(split_blocks({0.0, {1, 1, 1, 1, 1}, 0.0}, 3), (std::vector<int64_t>{0, 1, 3, 5}));
}

TEST(SplitBlocksTest, MoreStagesThanBlocksAreRefused) {
  EXPECT_THROW(split_blocks({0.0, {1, 1}, 0.0}, 3), Error);
}

// The output projection, as much work as six blocks, lies in the last stage of the last rank. If stages were
// balanced one by one, that rank's earlier stage would be as large as those of other ranks, and the rank
// have too much work.
TEST(SplitBlocksTest, StagesOfARankCountTogether) {
  const PartCosts costs{0.0, std::vector<double>(30, 1.0), 6.0};
  const auto work_of_ranks = [&](int64_t ranks, int64_t per_rank) {
    const std::vector<int64_t> bounds = split_blocks(costs, ranks, per_rank);
    std::vector<double> work(static_cast<size_t>(ranks), 0.0);
    for (size_t s = 0; s + 1 < bounds.size(); ++s)
      work[s % work.size()] += static_cast<double>(bounds[s + 1] - bounds[s]);
    work.back() += costs.last;
    return work;
  };
  using ::testing::ElementsAre;
  EXPECT_THAT(work_of_ranks(2, 2), ElementsAre(18, 18));
  EXPECT_THAT(work_of_ranks(4, 2), ElementsAre(9, 9, 9, 9));
  EXPECT_THAT(work_of_ranks(3, 5), ElementsAre(12, 12, 12));
}

// Compares the split with all possible ones.
TEST(SplitBlocksTest, TheBusiestRankHasAsLittleAsCanBe) {
  testing::Random drawn;
  std::mt19937_64& random = drawn.engine();
  const auto draw = [&] { return static_cast<double>(random() % 10); };
  for (int round = 0; round < 200; ++round) {
    PartCosts costs{draw(), {}, draw()};
    for (size_t i = 0, count = 1 + random() % 8; i < count; ++i) costs.blocks.push_back(draw());
    const auto blocks = static_cast<int64_t>(costs.blocks.size());
    const int64_t ranks = 1 + static_cast<int64_t>(random() % blocks);
    const int64_t per_rank = 1 + static_cast<int64_t>(random() % (blocks / ranks)), stages = ranks * per_rank;
    // Returns the work of the busiest rank; with several stages a rank, also that of the largest stage.
    const auto busiest = [&](const std::vector<int64_t>& bounds) {
      std::vector<double> work(static_cast<size_t>(ranks), 0.0);
      double stage = 0.0;
      for (int64_t s = 0; s < stages; ++s) {
        double sum = (s == 0 ? costs.first : 0.0) + (s + 1 == stages ? costs.last : 0.0);
        for (int64_t i = bounds[s]; i < bounds[s + 1]; ++i) sum += costs.blocks[i];
        work[s % ranks] += sum;
        stage = std::max(stage, sum);
      }
      return std::pair{*std::ranges::max_element(work), per_rank == 1 ? 0.0 : stage};
    };
    std::pair least(1e9, 1e9);
    for (int64_t mask = 0; mask < int64_t{1} << (blocks - 1); ++mask) {
      std::vector<int64_t> bounds = {0};
      for (int64_t i = 1; i < blocks; ++i) {
        if (mask >> (i - 1) & 1) bounds.push_back(i);
      }
      bounds.push_back(blocks);
      if (static_cast<int64_t>(bounds.size()) == stages + 1) least = std::min(least, busiest(bounds));
    }
    const std::vector<int64_t> bounds = split_blocks(costs, ranks, per_rank);
    ASSERT_EQ(bounds.size(), static_cast<size_t>(stages + 1));
    ASSERT_EQ(bounds.front(), 0);
    ASSERT_EQ(bounds.back(), blocks);
    for (int64_t s = 0; s < stages; ++s) ASSERT_LT(bounds[s], bounds[s + 1]);
    ASSERT_EQ(busiest(bounds), least);
  }
}

}  // namespace
}  // namespace tessera::parallel
