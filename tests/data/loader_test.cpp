#include "tessera/data/loader.h"

#include <algorithm>
#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/core/error.h"
#include "tessera/core/rng.h"
#include "tessera/data/curriculum_loader.h"

#include "tests/data/expect_error.h"

namespace tessera::data {
namespace {

using ::testing::ElementsAre;

constexpr int32_t kNone = static_cast<int32_t>(kIgnoreLabel);

// Returns rows of random lengths and labels. All tokens of a row are its number.
RowSet random_rows(int64_t count, int64_t max_length, uint64_t seed) {
  const auto store = std::make_shared<RowStore>();
  const CounterRng rng(seed, 1);
  RowSet rows{store, {}};
  for (int64_t i = 0; i < count; ++i) {
    const int64_t length = 2 + static_cast<int64_t>(rng.below(2 * i, max_length - 1));
    Row row;
    for (int64_t t = 0; t < length; ++t) {
      row.input_ids.push_back(static_cast<int32_t>(i));
      const bool trained = t == 1 || rng.bits(1'000'000 + i * 1000 + t) % 2 == 0;
      row.labels.push_back(trained ? static_cast<int32_t>(i) : kNone);
    }
    store->append(row);
    rows.rows.push_back(i);
  }
  return rows;
}

LoaderOptions options_of(int64_t dp_rank, int64_t dp_size, int64_t micro, int64_t accumulation,
                         bool packing) {
  LoaderOptions options;
  options.dp_rank = dp_rank;
  options.dp_size = dp_size;
  options.micro_batch_size = micro;
  options.accumulation = accumulation;
  options.sequence_len = 32;
  options.packing = packing;
  options.seed = 3;
  return options;
}

// Counts the documents of a micro-batch by row number, which their tokens tell.
void count_documents(const MicroBatch& batch, const RowSet& rows, std::map<int64_t, int64_t>& seen) {
  ASSERT_EQ(batch.document_starts.front(), 0);
  ASSERT_EQ(batch.document_starts.back(), static_cast<int64_t>(batch.input_ids.size()));
  ASSERT_EQ(batch.labels.size(), batch.input_ids.size());
  int64_t labels = 0;
  for (size_t d = 0; d + 1 < batch.document_starts.size(); ++d) {
    const int64_t begin = batch.document_starts[d], end = batch.document_starts[d + 1];
    const int64_t row = batch.input_ids[begin];
    ASSERT_EQ(end - begin, rows.store->length(row));
    const Row expected = rows.store->row(row);
    for (int64_t i = begin; i < end; ++i) {
      ASSERT_EQ(batch.input_ids[i], row);
      ASSERT_EQ(batch.position_ids[i], i - begin);
      ASSERT_EQ(batch.labels[i], i + 1 < end ? expected.labels[i + 1 - begin] : kNone);
      labels += batch.labels[i] != kIgnoreLabel ? 1 : 0;
    }
    ++seen[row];
  }
  EXPECT_EQ(batch.label_tokens, labels);
}

TEST(RowStore, KeepsRowsAndCountsTrainedLabels) {
  RowStore store;
  store.append(Row{{5, 6, 7, 8, 9}, {5, kNone, 7, 8, kNone}});
  store.append(Row{{}, {}});
  store.append(Row{{4, 4}, {kNone, 4}});
  EXPECT_EQ(store.size(), 3);
  EXPECT_EQ(store.label_count(0), 2);  // position 0 is never predicted
  EXPECT_EQ(store.label_count(1), 0);
  EXPECT_EQ(store.label_count(2), 1);
  EXPECT_THAT(store.row(0).labels, ElementsAre(5, kNone, 7, 8, kNone));
  EXPECT_THAT(store.row(2).input_ids, ElementsAre(4, 4));
  EXPECT_THAT(store.row(2).labels, ElementsAre(kNone, 4));
  EXPECT_EQ(store.num_tokens(), 7);
}

TEST(Loader, ShiftsLabelsInsideDocuments) {
  const auto store = std::make_shared<RowStore>();
  store->append(Row{{1, 2, 3}, {1, kNone, 3}});
  store->append(Row{{4, 5}, {4, 5}});
  LoaderOptions options = options_of(0, 1, 2, 1, false);
  options.shuffle = false;
  Loader loader({store, {0, 1}}, options);
  const Step step = loader.next_step();
  ASSERT_EQ(step.micro_batches.size(), 1U);
  const MicroBatch& batch = step.micro_batches[0];
  EXPECT_THAT(batch.input_ids, ElementsAre(1, 2, 3, 4, 5));
  EXPECT_THAT(batch.labels, ElementsAre(kIgnoreLabel, 3, kIgnoreLabel, 5, kIgnoreLabel));
  EXPECT_THAT(batch.position_ids, ElementsAre(0, 1, 2, 0, 1));
  EXPECT_THAT(batch.document_starts, ElementsAre(0, 3, 5));
  EXPECT_EQ(batch.label_tokens, 2);
  EXPECT_EQ(step.label_tokens, 2);
  EXPECT_EQ(step.tokens, 5);
  EXPECT_TRUE(step.ends_epoch);
}

// In each epoch all ranks together see the dataset exactly once, and they agree on everything that is global.
TEST(Loader, RanksTogetherSeeEveryRowOnceAnEpoch) {
  for (const bool packing : {false, true}) {
    for (uint64_t seed = 0; seed < 6; ++seed) {
      const CounterRng rng(seed, 9);
      const auto rows = random_rows(1 + static_cast<int64_t>(rng.below(0, 90)), 32, seed);
      const auto micro = 1 + static_cast<int64_t>(rng.below(1, 3));
      const auto accumulation = 1 + static_cast<int64_t>(rng.below(2, 3));
      for (const int64_t world : {1, 2, 3, 4}) {
        SCOPED_TRACE("seed " + std::to_string(seed) + " world " + std::to_string(world) + " packing " +
                     std::to_string(packing));
        std::vector<Loader> loaders;
        for (int64_t rank = 0; rank < world; ++rank)
          loaders.emplace_back(rows, options_of(rank, world, micro, accumulation, packing));
        for (int64_t epoch = 0; epoch < 2; ++epoch) {
          std::map<int64_t, int64_t> seen;
          const int64_t steps = loaders[0].steps_per_epoch();
          for (int64_t s = 0; s < steps; ++s) {
            std::vector<Step> step;
            for (Loader& loader : loaders) step.push_back(loader.next_step());
            int64_t labels = 0, tokens = 0;
            for (const Step& mine : step) {
              EXPECT_EQ(mine.micro_batches.size(), step[0].micro_batches.size());
              EXPECT_LE(static_cast<int64_t>(mine.micro_batches.size()), accumulation);
              EXPECT_EQ(mine.label_tokens, step[0].label_tokens);
              EXPECT_EQ(mine.next, step[0].next);
              EXPECT_EQ(mine.epoch, epoch);
              EXPECT_EQ(mine.ends_epoch, s + 1 == steps);
              for (const MicroBatch& batch : mine.micro_batches) {
                count_documents(batch, rows, seen);
                labels += batch.label_tokens;
                tokens += static_cast<int64_t>(batch.input_ids.size());
              }
            }
            EXPECT_EQ(labels, step[0].label_tokens);
            EXPECT_EQ(tokens, step[0].tokens);
            EXPECT_GE(labels, 1);
          }
          EXPECT_EQ(static_cast<int64_t>(seen.size()), rows.size());
          for (const auto& [row, times] : seen) EXPECT_EQ(times, 1) << row;
        }
      }
    }
  }
}

std::vector<std::vector<int64_t>> step_rows(Loader& loader) {
  std::vector<std::vector<int64_t>> out;
  for (const MicroBatch& batch : loader.next_step().micro_batches) out.push_back(batch.input_ids);
  return out;
}

TEST(Loader, GoesOnFromACursor) {
  const auto rows = random_rows(53, 32, 5);
  for (const bool packing : {false, true}) {
    Loader straight(rows, options_of(1, 2, 2, 2, packing));
    std::vector<Cursor> cursors;
    std::vector<std::vector<std::vector<int64_t>>> steps;
    for (int i = 0; i < 20; ++i) {
      cursors.push_back(straight.cursor());
      steps.push_back(step_rows(straight));
    }
    for (const size_t start : {0U, 3U, 7U, 19U, 12U}) {
      Loader resumed(rows, options_of(1, 2, 2, 2, packing));
      resumed.seek(cursors[start]);
      for (size_t i = start; i < steps.size(); ++i)
        EXPECT_EQ(step_rows(resumed), steps[i]) << start << " " << i;
    }
  }
}

TEST(Loader, ACursorIsGoodForAnotherNumberOfRanks) {
  const auto rows = random_rows(41, 32, 6);
  Loader before(rows, options_of(0, 1, 2, 2, false));
  std::map<int64_t, int64_t> seen;
  for (int i = 0; i < 4; ++i) {
    for (const MicroBatch& batch : before.next_step().micro_batches) count_documents(batch, rows, seen);
  }
  EXPECT_EQ(seen.size(), 16U);
  for (int64_t rank = 0; rank < 3; ++rank) {
    Loader after(rows, options_of(rank, 3, 1, 2, false));
    after.seek(before.cursor());
    while (true) {
      const Step step = after.next_step();
      for (const MicroBatch& batch : step.micro_batches) count_documents(batch, rows, seen);
      if (step.ends_epoch) break;
    }
  }
  EXPECT_EQ(seen.size(), 41U);
  for (const auto& [row, times] : seen) EXPECT_EQ(times, 1) << row;
}

// This includes the last micro-batches of an epoch: dropout and the balance of experts depend on the
// micro-batch.
TEST(Loader, MicroBatchesAreTheSameForAnyNumberOfRanks) {
  for (const int64_t size : {1, 7, 25, 31}) {
    const auto rows = random_rows(size, 32, 4);
    for (const int64_t world : {2, 3, 4, 6}) {
      SCOPED_TRACE(std::to_string(size) + " rows on " + std::to_string(world) + " ranks");
      Loader alone(rows, options_of(0, 1, 2, 12, false));
      std::vector<Loader> ranks;
      for (int64_t rank = 0; rank < world; ++rank)
        ranks.emplace_back(rows, options_of(rank, world, 2, 12 / world, false));
      for (int step = 0; step < 4; ++step) {
        const std::vector<std::vector<int64_t>> want = step_rows(alone);
        std::vector<std::vector<std::vector<int64_t>>> got;
        for (Loader& rank : ranks) got.push_back(step_rows(rank));
        const size_t all = got[0].size() * got.size();
        ASSERT_GE(all, want.size());
        for (size_t i = 0; i < all; ++i) {
          const auto& batch = got[i % got.size()][i / got.size()];
          EXPECT_EQ(batch, i < want.size() ? want[i] : std::vector<int64_t>()) << "step " << step << " " << i;
        }
      }
    }
  }
}

TEST(Loader, FewSamplesLeaveTheLastRanksEmpty) {
  const auto rows = random_rows(2, 8, 1);
  int64_t empty = 0;
  for (int64_t rank = 0; rank < 4; ++rank) {
    Loader loader(rows, options_of(rank, 4, 2, 4, false));
    EXPECT_EQ(loader.steps_per_epoch(), 1);
    const Step step = loader.next_step();
    ASSERT_EQ(step.micro_batches.size(), 1U);
    if (!step.micro_batches[0].input_ids.empty()) continue;
    ++empty;
    EXPECT_THAT(step.micro_batches[0].document_starts, ElementsAre(0));
    EXPECT_EQ(step.micro_batches[0].label_tokens, 0);
  }
  EXPECT_EQ(empty, 3);
}

TEST(Loader, OrderIsAFunctionOfSeedAndEpoch) {
  const auto rows = random_rows(64, 8, 2);
  const auto epoch_order = [&](uint64_t seed, int64_t epoch, int64_t world, bool shuffle) {
    LoaderOptions options = options_of(0, world, 1, 1, false);
    options.seed = seed;
    options.shuffle = shuffle;
    Loader loader(rows, options);
    loader.seek({epoch, 0});
    std::vector<int64_t> order;
    for (int64_t i = 0; i < loader.num_samples(); ++i) order.push_back(loader.rows_of_sample(i)[0]);
    return order;
  };
  EXPECT_EQ(epoch_order(1, 0, 1, true), epoch_order(1, 0, 4, true));
  EXPECT_NE(epoch_order(1, 0, 1, true), epoch_order(1, 1, 1, true));
  EXPECT_NE(epoch_order(1, 0, 1, true), epoch_order(2, 0, 1, true));
  const std::vector<int64_t> plain = epoch_order(1, 5, 1, false);
  EXPECT_TRUE(std::is_sorted(plain.begin(), plain.end()));
}

TEST(Loader, RefusesNothingAndCursorsOutside) {
  EXPECT_EQ(error_text("E-DATA-NO-ROWS",
                       [] {
                         Loader({std::make_shared<RowStore>(), {}}, {});
                       })
                .empty(),
            false);
  Loader loader(random_rows(4, 8, 1), options_of(0, 1, 1, 1, false));
  for (const Cursor& cursor : {Cursor{0, 4}, Cursor{-1, 0}, Cursor{0, -1}}) {
    error_text("E-CKPT-CURSOR", [&] { loader.seek(cursor); });
  }
}

TEST(Loader, GroupsSamplesOfLikeLengthWhateverTheRanks) {
  const RowSet rows = random_rows(203, 30, 8);
  LoaderOptions options = options_of(0, 1, 1, 1, false);
  options.groups_by_length = true;
  const auto epoch_of = [&](const LoaderOptions& of, int64_t epoch) {
    Loader loader(rows, of);
    loader.seek({epoch, 0});
    std::vector<int64_t> order;
    for (int64_t i = 0; i < loader.num_samples(); ++i) order.push_back(loader.rows_of_sample(i).front());
    return order;
  };
  const std::vector<int64_t> order = epoch_of(options, 0);
  std::vector<int64_t> sorted = order;
  std::sort(sorted.begin(), sorted.end());
  for (int64_t i = 0; i < rows.size(); ++i) ASSERT_EQ(sorted[i], i) << "each row once";
  int64_t longest = 0, falls = 0, rises = 0;
  for (int64_t i = 0; i < rows.size(); ++i) longest = std::max(longest, rows.length(i));
  EXPECT_EQ(rows.length(order.front()), longest);
  for (size_t i = 1; i < order.size(); ++i) {
    falls += rows.length(order[i]) < rows.length(order[i - 1]) ? 1 : 0;
    rises += rows.length(order[i]) > rows.length(order[i - 1]) ? 1 : 0;
  }
  // There are four groups of 50 rows and one of 3. The longest row is put first, which may add one rise in
  // length.
  EXPECT_LE(rises, 6);
  EXPECT_GT(falls, 50);
  EXPECT_NE(order, epoch_of(options, 1));
  LoaderOptions other = options_of(1, 3, 2, 4, false);
  other.groups_by_length = true;
  EXPECT_EQ(order, epoch_of(other, 0));
}

// Three datasets of 30, 9 and 21 rows. The weight of the second one falls to zero and rises again.
struct Curriculum {
  RowSet rows = random_rows(60, 32, 4);
  config::DataConfig config;

  Curriculum() {
    const auto store = std::make_shared<RowStore>();
    const int64_t begins[] = {0, 30, 39};
    for (int64_t row = 0; row < rows.size(); ++row) {
      if (std::ranges::count(begins, row) > 0) store->begin_dataset("d");
      store->append(rows.store->row(row));
    }
    rows = {store, random_order(rows.size(), 1, "test")};
    config.datasets.resize(3);
    config.datasets[1].weight = 2;
    config.datasets[1].weight_from_step = {{"11", "0"}, {"31", "4"}};
  }
  static int64_t dataset_of(int64_t row) { return row < 30 ? 0 : row < 39 ? 1 : 2; }
};

TEST(CurriculumLoader, WeightsHoldFromTheirStepsOn) {
  Curriculum of;
  for (const bool packing : {false, true}) {
    const auto loader = open_loader(of.rows, of.config, options_of(0, 1, 4, 10, packing));
    EXPECT_EQ(loader->steps_per_epoch(), 0);
    EXPECT_EQ(loader->datasets(), (std::vector<std::string>{"d", "d-2", "d-3"}));
    std::map<int64_t, int64_t> seen;
    std::vector<double> share(3);  // share of the second dataset in the steps of each of its three weights
    for (int64_t step = 0; step < 50; ++step) {
      const size_t weight = step < 10 ? 0 : step < 30 ? 1 : 2;
      const Step made = loader->next_step();
      int64_t labels = 0;
      std::vector<int64_t> of_datasets(3, 0);
      for (const MicroBatch& batch : made.micro_batches) {
        count_documents(batch, of.rows, seen);
        labels += batch.label_tokens;
        for (size_t t = 0; t < batch.labels.size(); ++t) {
          EXPECT_EQ(batch.datasets[t], Curriculum::dataset_of(batch.input_ids[t]));
          of_datasets[batch.datasets[t]] += batch.labels[t] != kIgnoreLabel ? 1 : 0;
        }
      }
      EXPECT_EQ(labels, made.label_tokens);
      EXPECT_EQ(of_datasets, made.dataset_label_tokens);
      share[weight] +=
          static_cast<double>(of_datasets[1]) / static_cast<double>(labels) / (weight == 0 ? 10.0 : 20.0);
    }
    // The average length of rows is the same in each dataset, except for chance.
    EXPECT_NEAR(share[0], 0.5, 0.15);
    EXPECT_EQ(share[1], 0.0);
    EXPECT_NEAR(share[2], 0.667, 0.15);
    // Passes over a dataset are whole.
    for (const int64_t dataset : {0, 1, 2}) {
      int64_t fewest = 1000, most = 0;
      for (int64_t row = 0; row < 60; ++row) {
        if (Curriculum::dataset_of(row) != dataset) continue;
        fewest = std::min(fewest, seen[row]);
        most = std::max(most, seen[row]);
      }
      EXPECT_GE(fewest, 2);
      EXPECT_LE(most, fewest + 1);
    }
  }
}

TEST(CurriculumLoader, Ranks1And2And3SeeTheSameAndGoOnFromAnyStep) {
  Curriculum of;
  const auto add_ids = [](const MicroBatch& batch, std::vector<int64_t>& all) {
    all.insert(all.end(), batch.input_ids.begin(), batch.input_ids.end());
  };
  std::vector<std::vector<int64_t>> want;
  std::vector<Cursor> cursors;
  const auto alone = open_loader(of.rows, of.config, options_of(0, 1, 2, 6, true));
  for (int64_t i = 0; i < 40; ++i) {
    cursors.push_back(alone->cursor());
    want.emplace_back();
    for (const MicroBatch& batch : alone->next_step().micro_batches) add_ids(batch, want.back());
  }
  for (const int64_t world : {1, 2, 3}) {
    for (const int64_t start : {0, 7, 33}) {
      SCOPED_TRACE("start " + std::to_string(start) + " world " + std::to_string(world));
      std::vector<std::unique_ptr<StepSource>> loaders;
      for (int64_t rank = 0; rank < world; ++rank) {
        loaders.push_back(open_loader(of.rows, of.config, options_of(rank, world, 2, 6 / world, true)));
        loaders.back()->seek(cursors[start]);
        EXPECT_EQ(loaders.back()->cursor(), cursors[start]);
      }
      for (int64_t i = start; i < 40; ++i) {
        std::vector<Step> steps;
        for (const auto& loader : loaders) steps.push_back(loader->next_step());
        std::vector<int64_t> got;
        for (size_t m = 0; m < steps[0].micro_batches.size(); ++m) {
          for (const Step& step : steps) add_ids(step.micro_batches[m], got);
        }
        ASSERT_EQ(got, want[i]) << "step " << i;
        for (const Step& step : steps) EXPECT_EQ(step.label_tokens, steps[0].label_tokens);
      }
    }
  }
}

TEST(CurriculumLoader, ASampleIsWhatTheStepsTake) {
  const Curriculum of;
  for (const bool packing : {false, true}) {
    const LoaderOptions options = options_of(0, 1, 5, 9, packing);
    CurriculumLoader sampled(of.rows, of.config, options), taken(of.rows, of.config, options);
    const DrawnRows drawn = sampled.sample(45);
    EXPECT_EQ(drawn.sequences.size(), 45);
    std::vector<int64_t> want, got;
    for (const MicroBatch& batch : taken.next_step().micro_batches)
      want.insert(want.end(), batch.input_ids.begin(), batch.input_ids.end());
    for (int64_t i = 0; i < drawn.sequences.size(); ++i) {
      for (const int64_t place : drawn.sequences.sequence(i)) {
        const auto tokens = drawn.rows.store->tokens(drawn.rows.rows[place]);
        got.insert(got.end(), tokens.begin(), tokens.end());
      }
    }
    EXPECT_EQ(got, want);
    EXPECT_EQ(sampled.cursor(), taken.cursor());
  }
}

TEST(CurriculumLoader, PlacesOfOtherDataAreRefused) {
  Curriculum of;
  const auto loader = open_loader(of.rows, of.config, options_of(0, 1, 2, 1, false));
  loader->next_step();
  Cursor cursor = loader->cursor();
  cursor.streams.pop_back();
  EXPECT_THAT(error_text("E-CKPT-CURSOR", [&] { loader->seek(cursor); }), ::testing::HasSubstr("2 datasets"));
  loader->seek(cursor, true);
  cursor = loader->cursor();
  cursor.streams[1].record = 9;
  error_text("E-CKPT-CURSOR", [&] { loader->seek(cursor); });
  of.config.datasets[0].weight_from_step = {{"x", "1"}};
  EXPECT_THAT(
      error_text("E-CONFIG-WEIGHT", [&] { open_loader(of.rows, of.config, options_of(0, 1, 2, 1, false)); }),
      ::testing::HasSubstr("a step, from 1 on"));
}

// A dataset of which no row is left counts as missing.
TEST(CurriculumLoader, DatasetsWithoutRowsAreNeverDrawn) {
  Curriculum of;
  std::erase_if(of.rows.rows, [](int64_t row) { return Curriculum::dataset_of(row) == 1; });
  const auto loader = open_loader(of.rows, of.config, options_of(0, 1, 4, 4, false));
  EXPECT_EQ(loader->datasets(), (std::vector<std::string>{"d", "d-3"}));
  for (int64_t step = 0; step < 20; ++step) {
    for (const MicroBatch& batch : loader->next_step().micro_batches) {
      for (size_t t = 0; t < batch.input_ids.size(); ++t)
        EXPECT_EQ(batch.datasets[t], Curriculum::dataset_of(batch.input_ids[t]) / 2);
    }
  }
}

}  // namespace
}  // namespace tessera::data
