// Tests that the shared data files load completely.
#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/data/loader_options.h"
#include "tessera/data/prepare.h"

#include "tests/data/prompt_fixture.h"
#include "tests/testing/shared_data.h"
#include "tests/testing/skip.h"

namespace tessera::data {
namespace {

class SharedData : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = testing::shared_data("alpaca_roleplay.json");
    if (folder_.empty()) GTEST_SKIP() << testing::skip::kSharedData;
    recipe_.sequence_len = 4096;
    recipe_.source_folder = folder_;
    recipe_.sample_packing = true;
  }

  DatasetStats load(const Json& keys) {
    recipe_.datasets = {dataset_of(keys)};
    const PreparedData data = prepare_data(recipe_, small_tokenizer(), nullptr);
    const Loader loader(data.train, train_loader_options(recipe_, 0, 1));
    EXPECT_GT(loader.packing_efficiency(), 0.9);
    const DatasetStats& stats = data.train_stats[0];
    EXPECT_EQ(stats.rows + stats.dropped_long + stats.dropped_short + stats.dropped_unlabelled,
              stats.records);
    EXPECT_EQ(stats.bad_records, 0);
    return stats;
  }

  std::string folder_;
  config::Recipe recipe_;
};

TEST_F(SharedData, Alpaca) {
  const DatasetStats stats = load({{"path", "alpaca_roleplay.json"}, {"type", "alpaca"}});
  EXPECT_EQ(stats.records, 3146);
  EXPECT_EQ(stats.end_labels, stats.rows);
}

TEST_F(SharedData, ShareGpt) {
  const DatasetStats stats =
      load({{"path", "sharegpt_identity.json"}, {"type", "sharegpt"}, {"chat_template", "chatml"}});
  EXPECT_EQ(stats.records, 500);
  EXPECT_GE(stats.end_labels, stats.rows);
}

TEST_F(SharedData, Gsm8k) {
  for (const auto& [name, rows] :
       {std::pair{"gsm8k_train.jsonl", 7473}, std::pair{"gsm8k_test.jsonl", 1319}}) {
    const DatasetStats stats = load(
        {{"path", name}, {"type", "alpaca"}, {"field_instruction", "question"}, {"field_output", "answer"}});
    EXPECT_EQ(stats.rows, rows);
  }
}

TEST_F(SharedData, TinyShakespeare) {
  const std::string path = folder_ + "/tinyshakespeare.txt";
  recipe_.datasets = {dataset_of({{"path", path}, {"type", "completion"}})};
  recipe_.shuffle_merged_datasets = false;
  const PreparedData data = prepare_data(recipe_, small_tokenizer(), nullptr);
  int64_t bytes = 0;
  for (const int64_t row : data.train.rows) {
    for (const int32_t id : data.train.store->tokens(row)) {
      if (!small_tokenizer().is_special(id))
        bytes += static_cast<int64_t>(small_tokenizer().token_bytes(id).size());
    }
  }
  EXPECT_EQ(bytes, static_cast<int64_t>(std::filesystem::file_size(path)));
  EXPECT_EQ(data.train_stats[0].end_labels, 1);
}

}  // namespace
}  // namespace tessera::data
