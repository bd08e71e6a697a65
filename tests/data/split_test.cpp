#include "tessera/data/readers/split.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/data/expect_error.h"

namespace tessera::data {
namespace {

using ::testing::HasSubstr;

RecordRange range_of(const std::string& split, int64_t num_records, int64_t shards = 1,
                     int64_t shards_idx = 0) {
  config::DatasetConfig dataset;
  dataset.source_file = "r.yaml";
  dataset.source_line = 5;
  dataset.split = split;
  return resolve_range(parse_split(dataset), shards, shards_idx, num_records);
}

void expect_range(const RecordRange& range, int64_t begin, int64_t end) {
  EXPECT_EQ(range.begin, begin);
  EXPECT_EQ(range.end, end);
}

TEST(Split, Slices) {
  expect_range(range_of("", 10), 0, 10);
  expect_range(range_of("train", 10), 0, 10);
  expect_range(range_of("train[:10%]", 25), 0, 2);   // 2.5 is rounded to the even 2
  expect_range(range_of("train[10%:]", 35), 4, 35);  // 3.5 is rounded to the even 4
  expect_range(range_of("test[100:200]", 150), 100, 150);
  expect_range(range_of("train_sft[-5:]", 20), 15, 20);
  expect_range(range_of("train[50%:20%]", 20), 10, 10);
}

TEST(Split, ShardsTileTheRange) {
  int64_t next = 3;
  for (int64_t shard = 0; shard < 4; ++shard) {
    const RecordRange range = range_of("train[3:]", 17, 4, shard);
    EXPECT_EQ(range.begin, next);
    next = range.end;
  }
  EXPECT_EQ(next, 17);
}

TEST(Split, RefusesOthers) {
  for (const char* split : {"train[", "train[1]", "train[a:]", "train[:150%]", "[1:2]", "train[1:2]x",
                            "train[:5%]+test", "a b"}) {
    EXPECT_THAT(error_text("E-CONFIG-SPLIT", [&] { range_of(split, 10); }), HasSubstr("r.yaml:5: ")) << split;
  }
}

TEST(Split, NamesOfFiles) {
  for (const auto& [path, split] : std::initializer_list<std::pair<const char*, const char*>>{
           {"train-00000-of-00002.parquet", "train"},
           {"data/train_sft-00001-of-00003-abc.parquet", "train_sft"},
           {"main/test-00000-of-00001.parquet", "test"},
           {"data/val.jsonl", "validation"},
           {"gsm8k_test.jsonl.gz", "test"},
           {"training/0.json", "train"},
           {"eval.set.csv", "test"},
           {"train/test.jsonl", "test"},
           {"contest.jsonl", ""},
           {"trained.jsonl", ""},
           {"latest/rows.jsonl", ""},
           {"a.jsonl", ""}}) {
    EXPECT_EQ(split_of_file(path), split) << path;
  }
}

}  // namespace
}  // namespace tessera::data
