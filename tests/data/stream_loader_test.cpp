#include "tessera/data/stream/stream_loader.h"

#include <algorithm>
#include <barrier>
#include <chrono>
#include <filesystem>
#include <functional>
#include <map>
#include <numeric>
#include <set>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/data/steps_ahead.h"
#include "tessera/data/stream/deal_records.h"

#include "tests/data/expect_error.h"
#include "tests/data/prompt_fixture.h"
#include "tests/testing/compressed.h"
#include "tests/testing/skip.h"
#include "tests/testing/temp_folder.h"

namespace tessera::data {
namespace {

using ::testing::HasSubstr;

// Returns a document that differs from all others, such as "d17 d17 d17".
std::string document(int64_t number) {
  std::string text;
  for (int64_t i = 0; i <= number % 7; ++i) text += "d" + std::to_string(number) + " ";
  return text;
}

std::string json_line(const std::string& text) { return Json{{"text", text}}.dump() + '\n'; }

std::string json_lines(int64_t begin, int64_t end) {
  std::string text;
  for (int64_t i = begin; i < end; ++i) text += json_line(document(i));
  return text;
}

// An exchange between ranks that are threads.
class ThreadExchange : public StreamExchange {
 public:
  struct Group {
    explicit Group(size_t size) : meeting(static_cast<std::ptrdiff_t>(size)), told(size) {}
    std::barrier<> meeting;
    std::vector<std::string> told;  // the text of each rank
  };
  ThreadExchange(std::shared_ptr<Group> group, size_t rank) : group_(std::move(group)), rank_(rank) {}

  size_t rank() const override { return rank_; }
  size_t size() const override { return group_->told.size(); }
  std::vector<std::string> all_gather(const std::string& bytes) override {
    group_->told[rank_] = bytes;
    group_->meeting.arrive_and_wait();
    std::vector<std::string> all = group_->told;
    group_->meeting.arrive_and_wait();
    return all;
  }
  std::string scatter(size_t root, const std::vector<std::string>& parts) override {
    if (rank_ == root) group_->told = parts;
    group_->meeting.arrive_and_wait();
    std::string part = group_->told[rank_];
    group_->meeting.arrive_and_wait();
    return part;
  }

 private:
  const std::shared_ptr<Group> group_;
  const size_t rank_;
};

class StreamTest : public ::testing::Test {
 protected:
  StreamTest() {
    config_.source_folder = folder_.path();
    config_.streaming = true;
    config_.sequence_len = 32;
    config_.streaming_multipack_buffer_size = 8;
    options_.sequence_len = 32;
    options_.seed = 5;
  }

  config::DatasetConfig& add(const std::string& name, const std::string& text,
                             const std::string& type = "pretrain") {
    std::filesystem::create_directories(std::filesystem::path(folder_ / name).parent_path());
    folder_.write(name, text);
    return add_entry(name, type);
  }
  config::DatasetConfig& add_entry(const std::string& path, const std::string& type = "pretrain") {
    config_.datasets.push_back(dataset_of({{"path", path}, {"type", type}}));
    return config_.datasets.back();
  }

  std::unique_ptr<StreamLoader> open(int64_t rank = 0, int64_t ranks = 1, int64_t micro = 1,
                                     int64_t accumulation = 1,
                                     std::shared_ptr<StreamExchange> exchange = nullptr) const {
    LoaderOptions options = options_;
    options.dp_rank = rank;
    options.dp_size = ranks;
    options.micro_batch_size = micro;
    options.accumulation = accumulation;
    return std::make_unique<StreamLoader>(config_, &small_tokenizer(), nullptr,
                                          PrepareOptions{.num_threads = 2}, options, std::move(exchange));
  }

  // Runs body(rank, exchange) on a thread for each rank.
  template <class Body>
  static void on_ranks(size_t ranks, const Body& body) {
    const auto group = std::make_shared<ThreadExchange::Group>(ranks);
    std::vector<std::jthread> threads;
    for (size_t rank = 0; rank < ranks; ++rank)
      threads.emplace_back([&, rank] { body(rank, std::make_shared<ThreadExchange>(group, rank)); });
  }

  // Returns the ids of `count` sequences, laid end to end.
  static std::vector<int64_t> ids(StepSource& source, int64_t count) {
    std::vector<int64_t> all;
    for (int64_t i = 0; i < count; ++i) {
      for (const MicroBatch& batch : source.next_step().micro_batches)
        all.insert(all.end(), batch.input_ids.begin(), batch.input_ids.end());
    }
    return all;
  }

  // Returns the documents between EOS tokens, without the last one, which may be cut.
  static std::vector<std::string> texts(const std::vector<int64_t>& ids) {
    std::vector<std::string> texts(1);
    for (const int64_t id : ids) {
      if (id == *small_tokenizer().eos_id()) {
        texts.emplace_back();
      } else if (id != small_tokenizer().bos_id()) {
        texts.back() += small_tokenizer().token_bytes(static_cast<int32_t>(id));
      }
    }
    texts.pop_back();
    return texts;
  }

  testing::TempFolder folder_;
  config::DataConfig config_;
  LoaderOptions options_;
};

TEST_F(StreamTest, DocumentsFillSequencesWithOneSeparatorBetween) {
  add("d.jsonl", json_lines(0, 20));
  options_.shuffle = false;
  const auto stream = open();
  std::vector<int64_t> all;
  for (int i = 0; i < 20; ++i) {
    const Step step = stream->next_step();
    ASSERT_EQ(step.tokens, 32);
    const MicroBatch& batch = step.micro_batches.at(0);
    // Attention reaches over the whole sequence, and every next token is trained.
    EXPECT_EQ(batch.document_starts, (std::vector<int64_t>{0, 32}));
    EXPECT_EQ(step.label_tokens, 31);
    EXPECT_EQ(step.token_pairs, 32 * 32);
    for (int64_t t = 0; t < 32; ++t) {
      EXPECT_EQ(batch.position_ids[t], t);
      EXPECT_EQ(batch.labels[t], t + 1 < 32 ? batch.input_ids[t + 1] : kIgnoreLabel);
    }
    all.insert(all.end(), batch.input_ids.begin(), batch.input_ids.end());
  }
  const std::vector<std::string> found = texts(all);
  ASSERT_GT(found.size(), 20U);
  // Documents come in order, through the first pass into the second, and none is lost where sequences are
  // cut.
  for (size_t i = 0; i < found.size(); ++i) EXPECT_EQ(found[i], document(i % 20)) << i;
}

TEST_F(StreamTest, PackedDocumentsKeepTheirAttentionInside) {
  add("d.jsonl", json_lines(0, 20));
  options_.packing = true;
  const auto stream = open();
  config_.pretrain_multipack_attn = false;
  const auto across = open();
  for (int i = 0; i < 12; ++i) {
    const Step step = stream->next_step(), other = across->next_step();
    const MicroBatch& batch = step.micro_batches.at(0);
    EXPECT_EQ(batch.input_ids, other.micro_batches.at(0).input_ids);
    EXPECT_EQ(other.micro_batches.at(0).document_starts.size(), 2U);
    int64_t pairs = 0, labels = 0;
    for (size_t d = 0; d + 1 < batch.document_starts.size(); ++d) {
      const int64_t begin = batch.document_starts[d], end = batch.document_starts[d + 1];
      pairs += (end - begin) * (end - begin);
      labels += end - begin - 1;
      for (int64_t t = begin; t < end; ++t) {
        EXPECT_EQ(batch.position_ids[t], t - begin);
        EXPECT_EQ(batch.labels[t], t + 1 < end ? batch.input_ids[t + 1] : kIgnoreLabel);
        // A separator stands at the end of a document only.
        EXPECT_EQ(batch.input_ids[t] == *small_tokenizer().eos_id() && t + 1 < end, false);
      }
    }
    EXPECT_EQ(step.token_pairs, pairs);
    EXPECT_EQ(step.label_tokens, labels);
  }
}

// Texts that were made for a trainer which adds no separators bring their own, and would double it.
TEST_F(StreamTest, EndsThatTextsBringAreTakenOffAndNamed) {
  const std::string bos = small_tokenizer().id_to_token(small_tokenizer().bos_id().value_or(-1));
  const std::string eos = small_tokenizer().id_to_token(*small_tokenizer().eos_id());
  ASSERT_GE(eos.size(), 3U);
  add("d.jsonl", json_line("plain") + json_line("one" + eos) + json_line(bos + "two" + eos + "\n") +
                     json_line(eos) + json_line("three" + eos + eos) + json_line("a " + eos + " inside"));
  options_.shuffle = false;
  ::testing::internal::CaptureStderr();
  const auto found = texts(ids(*open(), 4));
  const std::string told = ::testing::internal::GetCapturedStderr();
  ASSERT_GE(found.size(), 5U);
  EXPECT_EQ(std::vector(found.begin(), found.begin() + 5),
            (std::vector<std::string>{"plain", "one", "two", "three", "a " + eos + " inside"}));
  EXPECT_THAT(
      told, HasSubstr("d.jsonl:2: the text itself begins or ends with a BOS or EOS token, which is removed"));
  EXPECT_THAT(told, HasSubstr("4 of 6 records already begin or end with a BOS or EOS token"));
}

TEST_F(StreamTest, DocumentsOfIdsGetOneSeparatorToo) {
  const int64_t eos = *small_tokenizer().eos_id();
  add("d.jsonl", Json{{"input_ids", {5, 6, eos}}}.dump() + "\n" + Json{{"input_ids", {7, 8}}}.dump() + "\n" +
                     Json{{"input_ids", {9, eos, eos}}}.dump() + "\n");
  options_.shuffle = false;
  const Step step = open()->next_step();
  std::vector<int64_t> without_bos = step.micro_batches[0].input_ids;
  if (small_tokenizer().bos_id() != small_tokenizer().eos_id())
    std::erase(without_bos, small_tokenizer().bos_id().value_or(-1));
  EXPECT_EQ(std::vector(without_bos.begin(), without_bos.begin() + 8),
            (std::vector<int64_t>{5, 6, eos, 7, 8, eos, 9, eos}));
}

// A cursor holds everything: reading goes on from it as if it had never stopped, in another process too.
TEST_F(StreamTest, GoesOnFromEveryStep) {
  add("part/a.jsonl", json_lines(0, 23));
  add("part/b.jsonl", "\n\n" + json_lines(23, 24) + "\n");
  add("part/c.jsonl.gz", testing::gzipped(json_lines(24, 60)));
  add("part/d.txt", "a text\nof two lines\n");
  config_.datasets.clear();
  add_entry("part");
  add("two.jsonl", json_lines(100, 111)).weight = 0.4;
  for (const bool shuffles : {true, false}) {
    for (const bool packing : {true, false}) {
      SCOPED_TRACE(std::to_string(shuffles) + std::to_string(packing));
      options_.shuffle = shuffles;
      options_.packing = packing;
      const auto whole = open();
      std::vector<Cursor> cursors = {whole->cursor()};
      std::vector<std::vector<int64_t>> steps;
      for (int i = 0; i < 60; ++i) {
        steps.push_back(ids(*whole, 1));
        cursors.push_back(whole->cursor());
      }
      // There were several passes over the smaller dataset.
      EXPECT_GT(cursors.back().streams[1].pass, 0);
      for (size_t start = 0; start < steps.size(); start += 7) {
        const auto resumed = open();
        resumed->seek(cursors[start]);
        EXPECT_EQ(resumed->cursor(), cursors[start]);
        for (size_t i = start; i < steps.size(); ++i) {
          ASSERT_EQ(ids(*resumed, 1), steps[i]) << "step " << i << " from " << start;
          ASSERT_EQ(resumed->cursor(), cursors[i + 1]) << "step " << i << " from " << start;
        }
      }
    }
  }
}

TEST_F(StreamTest, RanksShareTheSameSequences) {
  add("a.jsonl", json_lines(0, 40));
  add("b.jsonl", json_lines(100, 130));
  const auto want = ids(*open(), 24);
  for (const int64_t ranks : {1, 2, 3, 4}) {
    SCOPED_TRACE(ranks);
    std::vector<std::unique_ptr<StreamLoader>> loaders;
    for (int64_t rank = 0; rank < ranks; ++rank) loaders.push_back(open(rank, ranks, 2, 12 / 2 / ranks));
    std::vector<int64_t> got;
    for (int s = 0; s < (ranks == 4 ? 3 : 2); ++s) {
      std::vector<Step> steps;
      for (auto& loader : loaders) steps.push_back(loader->next_step());
      int64_t labels = 0;
      std::vector<int64_t> of_datasets(2, 0);
      for (const Step& step : steps) {
        EXPECT_EQ(step.label_tokens, steps[0].label_tokens);
        EXPECT_EQ(step.next, steps[0].next);
        EXPECT_EQ(step.micro_batches.size(), steps[0].micro_batches.size());
      }
      for (size_t m = 0; m < steps[0].micro_batches.size(); ++m) {
        for (const Step& step : steps) {
          const MicroBatch& batch = step.micro_batches[m];
          got.insert(got.end(), batch.input_ids.begin(), batch.input_ids.end());
          labels += batch.label_tokens;
          for (size_t t = 0; t < batch.labels.size(); ++t)
            of_datasets[batch.datasets[t]] += batch.labels[t] != kIgnoreLabel ? 1 : 0;
        }
      }
      EXPECT_EQ(labels, steps[0].label_tokens);
      EXPECT_EQ(of_datasets, steps[0].dataset_label_tokens);
    }
    EXPECT_EQ(got, want);
  }
}

// Each rank reads and tokenises its share of the documents, and all see the steps that a single rank would
// make: from the beginning, and from a cursor that another number of ranks has come to.
TEST_F(StreamTest, Ranks1And2And3And4ReadAndTokeniseEachAShare) {
  constexpr int64_t kSteps = 40;
  config_.streaming_multipack_buffer_size = 12;
  add("part/a.jsonl", json_lines(0, 230) + "\n");
  add("part/b.txt", "a text\nof two lines\n");
  add("part/c.jsonl.gz", testing::gzipped(json_lines(240, 300)));
  config_.datasets.clear();
  add_entry("part");
  add("rows.jsonl", json_lines(300, 420), "completion").weight = 0.5;
  add("late.jsonl", json_lines(500, 560)).weight_from_step = {{"5", "0"}, {"20", "2"}};
  for (const bool packing : {false, true}) {
    options_.packing = packing;
    const auto alone = open(0, 1, 2, 6);
    std::vector<std::vector<int64_t>> want;
    std::vector<Cursor> cursors = {alone->cursor()};
    for (int64_t i = 0; i < kSteps; ++i) {
      want.push_back(ids(*alone, 1));
      cursors.push_back(alone->cursor());
    }
    EXPECT_GT(cursors.back().streams[0].pass, 0) << "the end of the data lies within";
    EXPECT_GT(cursors.back().streams[2].pass, 0);
    for (const size_t ranks : {1, 2, 3, 4}) {
      SCOPED_TRACE(std::to_string(packing) + std::to_string(ranks));
      for (const int64_t start : {0, 17}) {
        std::vector<int64_t> read(ranks), tokenized(ranks);
        on_ranks(ranks, [&](size_t rank, const std::shared_ptr<StreamExchange>& exchange) {
          const auto loader = open(0, 1, 2, 6, exchange);
          if (start > 0) loader->seek(cursors[start]);
          const int64_t at_first = loader->records_read();  // records of a seek, which every rank reads
          for (int64_t i = start; i < kSteps; ++i) {
            EXPECT_EQ(ids(*loader, 1), want[i]) << "step " << i << " on rank " << rank;
            EXPECT_EQ(loader->cursor(), cursors[i + 1]) << "step " << i << " on rank " << rank;
          }
          read[rank] = loader->records_read() - at_first;
          tokenized[rank] = loader->records_tokenized();
        });
        // The last windows of a pass are smaller than the others.
        const double share = 1.0 / static_cast<double>(ranks);
        for (const auto& [records, most_apart] : {std::pair(read, 0.11), std::pair(tokenized, 0.05)}) {
          const auto all = static_cast<double>(std::accumulate(records.begin(), records.end(), int64_t{0}));
          EXPECT_GT(all, 300);
          for (const int64_t own : records)
            EXPECT_NEAR(static_cast<double>(own) / all, share, most_apart) << own << " of " << all;
        }
      }
    }
  }
}

// Steps ahead are made by all ranks together too: no rank is left alone in an exchange if another one seeks,
// or ends.
TEST_F(StreamTest, StepsAheadOf3RanksSeekAndEndTogether) {
  add("d.jsonl", json_lines(0, 100));
  const auto alone = open();
  std::vector<Cursor> cursors;
  std::vector<std::vector<int64_t>> want;
  for (int64_t i = 0; i < 30; ++i) {
    cursors.push_back(alone->cursor());
    want.push_back(ids(*alone, 1));
  }
  for (int64_t round = 0; round < 10; ++round) {
    on_ranks(3, [&](size_t rank, const std::shared_ptr<StreamExchange>& exchange) {
      StepsAhead ahead(open(0, 1, 1, 1, exchange));
      for (const int64_t start : {round, 2 * round, int64_t{0}}) {
        std::this_thread::sleep_for(std::chrono::microseconds(100 * rank * round));
        ahead.seek(cursors[start]);
        for (int64_t i = start; i < start + round; ++i) EXPECT_EQ(ids(ahead, 1), want[i]);
      }
    });
  }
}

// The error is the same whichever rank meets the bad record.
TEST_F(StreamTest, BadRecordsAreTheSameErrorOnAll3Ranks) {
  add("d.jsonl", json_lines(0, 3) + "{\"text\": 7}\n{bad\n" + json_lines(3, 6));
  options_.shuffle = false;
  const auto told_by = [&](const std::string& code) {
    std::vector<std::string> told(3);
    on_ranks(3, [&](size_t rank, const std::shared_ptr<StreamExchange>& exchange) {
      told[rank] = error_text(code, [&] { ids(*open(0, 1, 1, 1, exchange), 4); });
    });
    EXPECT_EQ(told[1], told[0]);
    EXPECT_EQ(told[2], told[0]);
    return told[0];
  };
  const std::string alone = error_text("E-DATA-FIELD-TYPE", [&] { ids(*open(), 4); });
  EXPECT_EQ(told_by("E-DATA-FIELD-TYPE"), alone);
  config_.on_bad_line = "skip";
  const auto want = ids(*open(), 4);
  on_ranks(3, [&](size_t, const std::shared_ptr<StreamExchange>& exchange) {
    const auto stream = open(0, 1, 1, 1, exchange);
    EXPECT_EQ(ids(*stream, 4), want);
    EXPECT_EQ(stream->sample(0).train_stats[0].bad_records, 2);
  });
  config_.max_bad_lines = 1;
  EXPECT_THAT(told_by("E-DATA-TOO-MANY-BAD-LINES"), HasSubstr("d.jsonl:4"));
}

TEST_F(StreamTest, ARankThatCannotReadEndsAll3) {
  const std::string text = testing::gzipped(json_lines(0, 200));
  for (const size_t bad : {0, 2}) {
    folder_.write("d.jsonl.gz", text);
    config_.datasets.clear();
    add_entry("d.jsonl.gz");
    std::vector<std::string> told(3);
    std::vector<std::unique_ptr<StreamLoader>> loaders;
    const auto group = std::make_shared<ThreadExchange::Group>(3);
    for (size_t rank = 0; rank < 3; ++rank) {
      if (rank == bad) {
        folder_.write("cut.jsonl.gz", text.substr(0, text.size() / 2));
        config_.datasets[0].path = "cut.jsonl.gz";
      } else {
        config_.datasets[0].path = "d.jsonl.gz";
      }
      loaders.push_back(open(0, 1, 1, 1, std::make_shared<ThreadExchange>(group, rank)));
    }
    {
      std::vector<std::jthread> threads;
      for (size_t rank = 0; rank < 3; ++rank) {
        threads.emplace_back([&, rank] {
          StepsAhead ahead(std::move(loaders[rank]));
          told[rank] = error_text("E-DATA-COMPRESSED", [&] { ids(ahead, 100); });
        });
      }
    }
    for (const std::string& error : told) EXPECT_THAT(error, HasSubstr("cut.jsonl.gz"));
  }
}

TEST(DealBySize, SharesAreNeighboursOfAboutOneSize) {
  using Sizes = std::vector<size_t>;
  EXPECT_EQ(deal_by_size(Sizes{1, 1, 1, 1, 1, 1}, 3), (Sizes{0, 2, 4, 6}));
  EXPECT_EQ(deal_by_size(Sizes{9, 1, 1, 1}, 2), (Sizes{0, 1, 4}));
  EXPECT_EQ(deal_by_size(Sizes{5}, 3), (Sizes{0, 0, 1, 1}));
  EXPECT_EQ(deal_by_size(Sizes{0, 0}, 3), (Sizes{0, 2, 2, 2}));
  EXPECT_EQ(deal_by_size(Sizes{}, 2), (Sizes{0, 0, 0}));
}

TEST_F(StreamTest, AShuffledPassIsEveryDocumentOnce) {
  for (int64_t file = 0; file < 5; ++file)
    add("part/" + std::to_string(file) + ".jsonl", json_lines(file * 10, file * 10 + 10));
  config_.datasets.clear();
  add_entry("part");
  std::vector<std::vector<std::string>> orders;
  for (const uint64_t seed : {5, 6}) {
    options_.seed = seed;
    const auto found = texts(ids(*open(), 80));
    ASSERT_GE(found.size(), 100U);
    for (const size_t pass : {size_t{0}, size_t{1}}) {
      orders.emplace_back(found.begin() + static_cast<int64_t>(pass) * 50,
                          found.begin() + static_cast<int64_t>(pass) * 50 + 50);
      EXPECT_EQ(std::set(orders.back().begin(), orders.back().end()).size(), 50U);
    }
  }
  EXPECT_EQ(std::set(orders.begin(), orders.end()).size(), 4U) << "other orders by seed and pass";
}

TEST_F(StreamTest, ASampleIsWhatTheStepsTake) {
  add("a.jsonl", json_lines(0, 40));
  add("b.jsonl", json_lines(100, 130));
  const PreparedData sampled = open()->sample(25);
  std::vector<int64_t> got;
  for (const int64_t row : sampled.train.rows) {
    const auto tokens = sampled.train.store->tokens(row);
    got.insert(got.end(), tokens.begin(), tokens.end());
  }
  EXPECT_EQ(got, ids(*open(), 25));
}

TEST_F(StreamTest, WeightsAreSharesOfTheSequencesAndChangeAtTheirSteps) {
  add("a.jsonl", json_lines(0, 40)).weight = 3;
  config::DatasetConfig& second = add("b.jsonl", json_lines(100, 130));
  second.weight_from_step = {{"501", "9"}, {"1001", "0"}};
  const auto stream = open(0, 1, 1, 2);
  EXPECT_EQ(stream->datasets(), (std::vector<std::string>{"a", "b"}));
  std::vector<int64_t> of_second(3, 0);
  for (int64_t step = 0; step < 1500; ++step) {
    for (const MicroBatch& batch : stream->next_step().micro_batches)
      of_second[static_cast<size_t>(step / 500)] += batch.datasets.front();
  }
  EXPECT_NEAR(static_cast<double>(of_second[0]) / 1000.0, 0.25, 0.05);
  EXPECT_NEAR(static_cast<double>(of_second[1]) / 1000.0, 0.75, 0.05);
  EXPECT_EQ(of_second[2], 0);

  second.weight_from_step = {{"0", "1"}};
  EXPECT_THAT(error_text("E-CONFIG-WEIGHT", [&] { open(); }), HasSubstr("a step, from 1 on"));
  second.weight_from_step = {{"7", "-1"}};
  EXPECT_THAT(error_text("E-CONFIG-WEIGHT", [&] { open(); }), HasSubstr("a weight, from 0 on"));
}

// Rows of other dataset types stay whole: each is a sequence, or several are packed into one.
TEST_F(StreamTest, RowsOfOtherTypesStayWhole) {
  add("d.jsonl", json_lines(0, 30), "completion");
  const auto one_each = open();
  options_.packing = true;
  const auto packed = open();
  for (int i = 0; i < 30; ++i) {
    const MicroBatch one = one_each->next_step().micro_batches.at(0);
    EXPECT_EQ(one.document_starts.size(), 2U);
    EXPECT_EQ(one.input_ids.back(), *small_tokenizer().eos_id());
    const MicroBatch several = packed->next_step().micro_batches.at(0);
    EXPECT_LE(several.input_ids.size(), 32U);
    EXPECT_GE(several.document_starts.size(), 2U);
    EXPECT_EQ(several.input_ids.back(), *small_tokenizer().eos_id());
  }
}

TEST_F(StreamTest, SkippedRecordsAndPartsOfASplitAreLeftOutInEveryPass) {
  config::DatasetConfig& dataset = add("d.jsonl", json_lines(0, 20));
  dataset.skip = 3;
  dataset.split = "train[2:9]";
  std::set<std::string> want;
  for (int64_t i = 5; i < 9; ++i) want.insert(document(i));
  const auto found = texts(ids(*open(), 12));
  EXPECT_EQ(std::set(found.begin(), found.end()), want);
  dataset.split = "train[:50%]";
  EXPECT_THAT(error_text("E-CONFIG-SPLIT", [&] { open(); }), HasSubstr("numbers of records"));
}

TEST_F(StreamTest, BadRecordsAreNamedOrCounted) {
  add("d.jsonl", json_lines(0, 3) + "{\"text\": 7}\n{bad\n" + json_lines(3, 6));
  options_.shuffle = false;
  EXPECT_THAT(error_text("E-DATA-FIELD-TYPE", [&] { ids(*open(), 2); }), HasSubstr("d.jsonl:4"));
  config_.on_bad_line = "skip";
  const auto found = texts(ids(*open(), 4));
  for (size_t i = 0; i < found.size(); ++i) EXPECT_EQ(found[i], document(static_cast<int64_t>(i % 6)));
  config_.max_bad_lines = 1;
  EXPECT_THAT(error_text("E-DATA-TOO-MANY-BAD-LINES", [&] { ids(*open(), 4); }), HasSubstr("d.jsonl:4"));
}

// Ranks read the same files at different moments, so a file that changes is an error.
TEST_F(StreamTest, FilesThatChangeUnderTheStreamAreNamed) {
  const std::string text = json_lines(0, 400);
  const auto read_on = [&](const std::function<void()>& change) {
    config_.datasets.clear();
    add("a.jsonl", text);
    const auto stream = open();
    const auto before = ids(*stream, 3);
    change();
    ids(*stream, 400);
  };
  const std::filesystem::path file = folder_ / "a.jsonl";
  read_on([&] { std::filesystem::last_write_time(file, std::filesystem::file_time_type::clock::now()); });
  read_on([&] { folder_.write("a.jsonl", text); });
  for (const std::string& other :
       {std::string(text).replace(text.size() - 5, 1, "8"), text + text, json_lines(0, 200)}) {
    EXPECT_THAT(error_text("E-DATA-CHANGED", [&] { read_on([&] { folder_.write("a.jsonl", other); }); }),
                HasSubstr("a.jsonl: the file is not the one that the run began with"));
  }
  EXPECT_THAT(error_text("E-STORAGE-NOT-FOUND", [&] { read_on([&] { std::filesystem::remove(file); }); }),
              HasSubstr("a.jsonl"));
}

TEST_F(StreamTest, AStreamWithoutARowEnds) {
  add("d.jsonl", json_line("") + json_line(""));
  EXPECT_THAT(error_text("E-DATA-NO-ROWS", [&] { ids(*open(), 1); }), HasSubstr("d.jsonl"));
}

TEST_F(StreamTest, OtherDataHaveAnotherFingerprint) {
  add("d.jsonl", json_lines(0, 20));
  const std::string before = open()->fingerprint();
  EXPECT_EQ(open(0, 3)->fingerprint(), before) << "nothing of ranks";
  options_.seed = 6;
  EXPECT_NE(open()->fingerprint(), before);
  options_.seed = 5;
  folder_.write("d.jsonl", json_lines(1, 21));
  EXPECT_NE(open()->fingerprint(), before);
}

TEST_F(StreamTest, PlacesOutsideTheDataAreRefused) {
  add("d.jsonl", json_lines(0, 20));
  const auto stream = open();
  ids(*stream, 3);
  Cursor cursor = stream->cursor();
  cursor.streams.clear();
  EXPECT_THAT(error_text("E-CKPT-CURSOR", [&] { open()->seek(cursor); }), HasSubstr("0 streamed datasets"));
  const auto anew = open();
  anew->seek(cursor, true);
  EXPECT_EQ(ids(*anew, 3), ids(*open(), 3));
  cursor = stream->cursor();
  cursor.streams[0].file = 1;
  error_text("E-CKPT-CURSOR", [&] { open()->seek(cursor); });
  cursor.streams[0].file = 0;
  cursor.streams[0].document = 9;
  error_text("E-CKPT-CURSOR", [&] { open()->seek(cursor); });
}

// Reading goes on from the middle of every kind of file.
TEST_F(StreamTest, TablesGoOnWithoutReadingTheirRowsAgain) {
  const std::string data = testing::source_folder() + "/tests/reference/data/tables";
  try {
    require_table_library("x.parquet");
  } catch (const Error&) {
    GTEST_SKIP() << testing::skip::kLibArrow;
  }
  for (const char* name : {"rows.parquet", "rows.arrow", "stream.arrow"}) {
    for (const int64_t count : {1, 7, 49}) {
      const auto reader = open_records(data + "/" + name, FileFormat::Table);
      const auto skipping = open_records(data + "/" + name, FileFormat::Table);
      RawRecord want, got;
      for (int64_t i = 0; i < count; ++i) reader->next(want);
      skipping->skip(count, 0, 0);
      ASSERT_TRUE(reader->next(want));
      ASSERT_TRUE(skipping->next(got));
      EXPECT_EQ(*got.value, *want.value) << name;
      EXPECT_EQ(got.element, want.element) << name;
    }
  }
}

}  // namespace
}  // namespace tessera::data
