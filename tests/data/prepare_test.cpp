#include "tessera/data/prepare.h"

#include <algorithm>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/data/loader.h"

#include "tests/data/expect_error.h"
#include "tests/data/prompt_fixture.h"
#include "tests/testing/temp_folder.h"

namespace tessera::data {
namespace {

using testing::TempFolder;

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class Prepare : public ::testing::Test {
 protected:
  Prepare() {
    config_.source_folder = folder_.path();
    config_.sequence_len = 64;
    config_.min_sample_len = 2;
  }

  void add(const std::string& name, const std::string& text, Json keys = Json::object()) {
    folder_.write(name, text);
    keys["path"] = name;
    if (!keys.contains("type")) keys["type"] = "completion";
    config_.datasets.push_back(dataset_of(keys));
  }

  PreparedData prepare(int64_t num_threads = 0, uint64_t seed = 42) const {
    return prepare_data(config_, small_tokenizer(), nullptr, {.num_threads = num_threads, .seed = seed});
  }

  std::string error(const std::string& code) const {
    return error_text(code, [&] { prepare(); });
  }

  TempFolder folder_;
  config::DataConfig config_;
};

std::string lines(int64_t count, const std::string& word = "tile ") {
  std::string text;
  for (int64_t i = 0; i < count; ++i) text += "{\"text\": \"" + word + std::to_string(i) + "\"}\n";
  return text;
}

// Returns pre-tokenised rows of the given lengths; all labels from `first_label` on are trained.
std::string token_rows(const std::vector<int64_t>& lengths, int64_t first_label = 0) {
  std::string text;
  for (const int64_t length : lengths) {
    Json row = {{"input_ids", Json::array()}, {"labels", Json::array()}};
    for (int64_t i = 0; i < length; ++i) {
      row["input_ids"].push_back(10 + i);
      row["labels"].push_back(i >= first_label ? 10 + i : kIgnoreLabel);
    }
    text += row.dump() + "\n";
  }
  return text;
}

std::vector<std::string> texts(const RowSet& rows) {
  std::vector<std::string> out;
  for (const int64_t row : rows.rows) {
    std::string text;
    for (const int32_t id : rows.store->tokens(row)) text += small_tokenizer().token_bytes(id);
    out.push_back(text);
  }
  return out;
}

// Rows to train on are not evaluated: test_datasets take the test split, as in Axolotl.
TEST_F(Prepare, TestDatasetsAreTheTestSplit) {
  folder_.write("set/train.jsonl", lines(5));
  folder_.write("set/test.jsonl", lines(2, "test "));
  config_.datasets.push_back(dataset_of({{"path", "set"}, {"type", "completion"}}));
  config_.test_datasets = config_.datasets;
  const PreparedData data = prepare();
  EXPECT_EQ(data.train.size(), 5);
  EXPECT_EQ(data.eval.size(), 2);
}

TEST_F(Prepare, SkipsRecordsAtTheStart) {
  config_.shuffle_merged_datasets = false;
  add("a.jsonl", lines(5));
  config_.datasets.back().skip = 3;
  const auto found = texts(prepare().train);
  ASSERT_EQ(found.size(), 2U);
  EXPECT_THAT(found[0], HasSubstr("tile 3"));
  EXPECT_THAT(found[1], HasSubstr("tile 4"));
  config_.datasets.back().skip = 7;
  EXPECT_THAT(error("E-DATA-NO-ROWS"), HasSubstr("0 records"));
}

TEST_F(Prepare, RowsToEvaluateOnHaveALengthOfTheirOwn) {
  add("a.jsonl", token_rows({20, 40}), Json{{"type", ""}});
  config_.test_datasets = config_.datasets;
  config_.eval_sequence_len = 30;
  PreparedData data = prepare();
  EXPECT_EQ(data.train.size(), 2);
  EXPECT_EQ(data.eval.size(), 1);
  // Streamed data are not prepared.
  config_.streaming = true;
  data = prepare();
  EXPECT_EQ(data.train.size(), 0);
  EXPECT_EQ(data.eval.size(), 1);
}

TEST_F(Prepare, RecordsWithEndsOfTheirOwnAreCounted) {
  const std::string eos = small_tokenizer().id_to_token(*small_tokenizer().eos_id());
  add("a.jsonl", Json{{"text", "one" + eos}}.dump() + "\n" + Json{{"text", "two"}}.dump() + "\n");
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(prepare().train_stats[0].own_ends, 1);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("1 of 2 records already begin or end with a BOS or EOS token"));
}

TEST_F(Prepare, WhatTheTypeNoticesOfRecordsIsToldOnce) {
  const Json question = {{"role", "user"}, {"content", "a"}};
  const Json answer = {{"role", "assistant"}, {"content", "there"}, {"mood", "good"}, {"id", 1}};
  std::string text;
  for (int i = 0; i < 5; ++i) text += Json{{"messages", {question, answer}}}.dump() + "\n";
  text +=
      Json{{"messages", {question, {{"role", "assistant"}, {"content", " there"}}, question}}}.dump() + "\n";
  add("a.jsonl", text,
      {{"type", "chat_template"},
       {"roles_to_train", Json::array()},
       {"train_on_eos", ""},
       {"chat_template_jinja",
        "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}{{ eos_token }}"
        "{% endfor %}"}});
  ::testing::internal::CaptureStderr();
  const DatasetStats stats = prepare().train_stats.at(0);
  const std::string told = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(stats.merged_borders, 5);
  EXPECT_EQ(stats.final_questions, 1);
  EXPECT_EQ(stats.rows, 5);
  EXPECT_EQ(stats.dropped_unlabelled, 1);
  const std::string file = folder_ / "a.jsonl";
  EXPECT_THAT(
      told,
      HasSubstr("in 5 of 6 records a token contains both the end of a prompt and the start of its answer: " +
                file + ":1, " + file + ":2, " + file + ":3, ... (answer_border: whole"));
  EXPECT_THAT(told, HasSubstr("1 of 6 records do not end with an answer and train nothing"));
  EXPECT_THAT(told,
              HasSubstr("the chat template does not read these fields of messages: id (5 messages), mood (5 "
                        "messages)"));
  // The form in which counts are kept and sent holds these too.
  DatasetStats copy;
  copy.set_details(stats.details());
  EXPECT_EQ(copy.merged_places, stats.merged_places);
  EXPECT_EQ(copy.unread_fields, stats.unread_fields);
  // Rows may have any number of fields.
  for (int i = 0; i < 1000; ++i) copy.note_unread("field " + std::to_string(i), 1);
  copy += copy;
  EXPECT_EQ(copy.unread_fields.size(), DatasetStats::kMaxFields);
}

TEST_F(Prepare, JoinsDatasetsInOrderWhenNotShuffled) {
  add("a.jsonl", "{\"text\": \"one\"}\n\n{\"text\": \"two\"}");
  add("b.json", "[{\"body\": \"three\"}]", {{"field", "body"}});
  add("c.txt", "four\n", {{"type", ""}});
  config_.shuffle_merged_datasets = false;
  const PreparedData data = prepare();
  EXPECT_THAT(texts(data.train), ElementsAre("<|bos|>one<|endoftext|>", "<|bos|>two<|endoftext|>",
                                             "<|bos|>three<|endoftext|>", "<|bos|>four\n<|endoftext|>"));
  ASSERT_EQ(data.train_stats.size(), 3U);
  EXPECT_EQ(data.train_stats[0].records, 2);
  EXPECT_EQ(data.train_stats[0].blank_lines, 1);
  EXPECT_EQ(data.train_stats[0].end_labels, 2);
  EXPECT_EQ(data.eval.size(), 0);
}

TEST_F(Prepare, TokenIdsNeedNoTokenizer) {
  add("ids.jsonl", token_rows({3, 5}), {{"type", ""}});
  const PrepareOptions options{.vocab_size = 15};
  const PreparedData data = prepare_token_ids(config_, options);
  ASSERT_EQ(data.train.size(), 2);
  EXPECT_EQ(data.train_stats[0].label_tokens, prepare().train_stats[0].label_tokens);
  EXPECT_THAT(error_text("E-DATA-TOKEN-ID", [&] { prepare_token_ids(config_, {.vocab_size = 14}); }),
              HasSubstr("ids.jsonl"));
  add("text.jsonl", lines(2));
  EXPECT_THAT(error_text("E-MODEL-TOKENIZER", [&] { prepare_token_ids(config_, options); }),
              HasSubstr("text.jsonl"));
}

TEST_F(Prepare, TextFilesNeedATokenizer) {
  add("text.txt", "one two three", {{"type", ""}});
  EXPECT_THAT(error_text("E-MODEL-TOKENIZER", [&] { prepare_token_ids(config_, {.vocab_size = 15}); }),
              HasSubstr("text.txt"));
}

TEST_F(Prepare, OutcomeDoesNotDependOnThreads) {
  add("a.jsonl", lines(500));
  const std::vector<std::string> one = texts(prepare(1).train), many = texts(prepare(7).train);
  EXPECT_EQ(one, many);
  EXPECT_EQ(std::set<std::string>(one.begin(), one.end()).size(), 500U);
  EXPECT_FALSE(std::is_sorted(one.begin(), one.end()));
}

TEST_F(Prepare, SeedDecidesTheShuffle) {
  add("a.jsonl", lines(50));
  const auto first = texts(prepare().train);
  EXPECT_EQ(texts(prepare(0, 42).train), first);
  EXPECT_NE(texts(prepare(0, 43).train), first);
}

TEST_F(Prepare, ValSetIsDisjointAndOfTheAskedSize) {
  add("a.jsonl", lines(25));
  for (const auto& [size, expected] : std::vector<std::pair<double, int64_t>>{{0.1, 3}, {5.0, 5}}) {
    config_.val_set_size = size;
    const PreparedData data = prepare();
    EXPECT_EQ(data.eval.size(), expected);
    std::set<int64_t> all(data.train.rows.begin(), data.train.rows.end());
    all.insert(data.eval.rows.begin(), data.eval.rows.end());
    EXPECT_EQ(all.size(), 25U);
    EXPECT_EQ(data.train.size() + data.eval.size(), 25);
  }
  config_.val_set_size = 25.0;
  EXPECT_THAT(error("E-DATA-VAL-SET-SIZE"), HasSubstr("got 25 of 25 rows"));
}

TEST_F(Prepare, TestDatasets) {
  add("a.jsonl", lines(4));
  folder_.write("b.jsonl", lines(3, "other "));
  config_.test_datasets.push_back(dataset_of({{"path", "b.jsonl"}, {"type", "completion"}}));
  const PreparedData data = prepare();
  EXPECT_EQ(data.train.size(), 4);
  EXPECT_EQ(texts(data.eval)[2], "<|bos|>other 2<|endoftext|>");
  EXPECT_EQ(data.eval_stats.at(0).rows, 3);
}

TEST_F(Prepare, Splits) {
  config_.shuffle_merged_datasets = false;
  add("a.jsonl", lines(20), {{"split", "train[-10%:]"}});
  EXPECT_THAT(texts(prepare().train),
              ElementsAre("<|bos|>tile 18<|endoftext|>", "<|bos|>tile 19<|endoftext|>"));
  config_.datasets[0].split = "train[3:5]";
  EXPECT_THAT(texts(prepare().train),
              ElementsAre("<|bos|>tile 3<|endoftext|>", "<|bos|>tile 4<|endoftext|>"));
  config_.datasets[0].split = "train[40:]";
  EXPECT_THAT(error("E-DATA-NO-ROWS"), HasSubstr("got 0 records"));
}

TEST_F(Prepare, ShardsTogetherAreTheWhole) {
  add("a.jsonl", lines(7));
  std::set<std::string> all;
  for (int64_t shard = 0; shard < 3; ++shard) {
    config_.datasets[0].shards = 3;
    config_.datasets[0].shards_idx = shard;
    for (const std::string& text : texts(prepare().train)) EXPECT_TRUE(all.insert(text).second);
  }
  EXPECT_EQ(all.size(), 7U);
}

TEST_F(Prepare, LongRowsAreDroppedTruncatedOrRefused) {
  add("a.jsonl", token_rows({3, 10, 5, 11, 1}), {{"type", ""}});
  config_.sequence_len = 8;
  const DatasetStats dropped = prepare().train_stats[0];
  EXPECT_EQ(dropped.rows, 2);
  EXPECT_EQ(dropped.dropped_long, 2);
  EXPECT_EQ(dropped.dropped_short, 1);
  EXPECT_EQ(dropped.longest, 11);
  EXPECT_EQ(dropped.tokens, 8);
  EXPECT_EQ(dropped.label_tokens, 6);

  config_.excess_length_strategy = config::ExcessLength::Truncate;
  const DatasetStats cut = prepare().train_stats[0];
  EXPECT_EQ(cut.rows, 4);
  EXPECT_EQ(cut.truncated, 2);
  EXPECT_EQ(cut.cut_tokens, 2 + 3);
  EXPECT_EQ(cut.tokens + cut.cut_tokens, 3 + 10 + 5 + 11);

  config_.excess_length_strategy = config::ExcessLength::Raise;
  config_.on_bad_line = "skip";
  EXPECT_THAT(error("E-DATA-ROW-TOO-LONG"),
              HasSubstr("a.jsonl:2:1: the row is longer than sequence_len; got 10 tokens, need at most 8"));
}

TEST_F(Prepare, TruncationThatLeavesNoLabelIsCountedAndRefusedForAll) {
  add("a.jsonl", token_rows({10, 12}, 8) + token_rows({4}), {{"type", ""}});
  config_.sequence_len = 8;
  config_.excess_length_strategy = config::ExcessLength::Truncate;
  const DatasetStats stats = prepare().train_stats[0];
  EXPECT_EQ(stats.rows, 1);
  EXPECT_EQ(stats.dropped_unlabelled, 2);
  EXPECT_EQ(stats.truncated, 0);

  folder_.write("a.jsonl", token_rows({10, 12}, 8));
  EXPECT_THAT(error("E-DATA-NO-ROWS"),
              ::testing::AllOf(HasSubstr("2 without labels"), HasSubstr("hint: no row has tokens to train")));
}

TEST_F(Prepare, ALabelOnTheFirstTokenAloneIsNoLabel) {
  add("a.jsonl",
      "{\"input_ids\": [5, 6], \"labels\": [5, -100]}\n{\"input_ids\": [5, 6], \"labels\": [-100, 6]}\n",
      {{"type", ""}});
  EXPECT_EQ(prepare().train_stats[0].dropped_unlabelled, 1);
}

TEST_F(Prepare, NoRowsAtAll) {
  EXPECT_THAT(error("E-DATA-NO-ROWS"), HasSubstr("names no datasets"));
  add("a.jsonl", "");
  EXPECT_THAT(error("E-DATA-NO-ROWS"),
              HasSubstr("a.jsonl: the dataset leaves no row to train on; got 0 records"));
  EXPECT_THAT(error("E-DATA-NO-ROWS"), HasSubstr("the file contains no record"));
  folder_.write("a.jsonl", lines(3));
  config_.datasets[0].split = "train[100:200]";
  EXPECT_THAT(error("E-DATA-NO-ROWS"), HasSubstr("the part that split, shards and skip select"));
  config_.datasets[0].split = "";
  folder_.write("a.jsonl", lines(3, "a very long line of words that cannot fit "));
  config_.sequence_len = 4;
  config_.datasets[0].type = "alpaca";
  config_.datasets[0].field_instruction = config_.datasets[0].field_output = "text";
  const std::string text = error("E-DATA-NO-ROWS");
  EXPECT_THAT(text, HasSubstr("3 records (0 bad), of their rows 3 too long"));
  EXPECT_THAT(text, HasSubstr("raise sequence_len (4; the longest row has "));
}

TEST_F(Prepare, BadRecordsNameFileAndLine) {
  add("a.jsonl", lines(2) + "\n{\"txt\": \"x\"}\n");
  EXPECT_THAT(error("E-DATA-MISSING-FIELD"), HasSubstr("a.jsonl:4:1: no field 'text'; got fields txt"));
  folder_.write("a.jsonl", lines(2) + "{\"text\": \"x}\n");
  EXPECT_THAT(error("E-DATA-JSON"), HasSubstr("a.jsonl:3:13: "));
  config_.datasets[0].path = "b.json";
  folder_.write("b.json", "[\n{\"text\": \"x\"},\n {\"text\": 1}]");
  EXPECT_THAT(error("E-DATA-FIELD-TYPE"), HasSubstr("b.json:3:2: element 1: field 'text' is not a text"));
}

TEST_F(Prepare, TheFirstBadRecordIsReportedWhateverTheThreads) {
  add("a.jsonl", lines(100) + "{\"a\": 1}\n" + lines(100) + "{\"b\": 1}\n");
  for (int64_t threads = 1; threads < 9; ++threads) {
    EXPECT_THAT(error_text("E-DATA-MISSING-FIELD", [&] { prepare(threads); }), HasSubstr("a.jsonl:101:1: "))
        << threads;
  }
}

TEST_F(Prepare, BadLinesMayBeSkippedUpToACap) {
  add("a.jsonl", "{bad\n" + lines(2) + "{\"text\": null}\n{\"text\": \"\xFF\"}\n");
  config_.on_bad_line = "skip";
  config_.max_bad_lines = 3;
  const DatasetStats stats = prepare().train_stats[0];
  EXPECT_EQ(stats.records, 5);
  EXPECT_EQ(stats.bad_records, 3);
  EXPECT_EQ(stats.rows, 2);
  config_.max_bad_lines = 2;
  EXPECT_THAT(error("E-DATA-TOO-MANY-BAD-LINES"), HasSubstr("a.jsonl:1:2: "));
}

TEST_F(Prepare, ABrokenArrayCannotBeSkipped) {
  add("a.json", "[{\"text\": \"x\"} {\"text\": \"y\"}]");
  config_.on_bad_line = "skip";
  EXPECT_THAT(error("E-DATA-JSON"), HasSubstr("no comma between elements"));
}

// Rows are counted whose end tokens are doubled, or are not trained although the token before is.
TEST_F(Prepare, EndsThatAreDoubledOrUntrainedAreCounted) {
  const auto end = small_tokenizer().token_to_id("<|endoftext|>");
  ASSERT_TRUE(end.has_value());
  const auto row = [&](const std::vector<int64_t>& ids, int64_t labels_to) {
    Json json = {{"input_ids", ids}, {"labels", Json::array()}};
    for (int64_t i = 0; i < std::ssize(ids); ++i)
      json["labels"].push_back(i > 0 && i < labels_to ? ids[i] : kIgnoreLabel);
    return json.dump() + "\n";
  };
  const int64_t stop = *end;
  add("ids.jsonl",
      row({10, 11, stop}, 3) + row({10, 11, stop, stop}, 3) + row({10, 11, stop}, 2) + row({10, 11, 12}, 3),
      {{"type", ""}});
  const DatasetStats stats = prepare().train_stats.at(0);
  EXPECT_EQ(stats.rows, 4);
  EXPECT_EQ(stats.end_labels, 2);
  EXPECT_EQ(stats.untrained_ends, 1);
  EXPECT_EQ(stats.repeated_ends, 1);
  const auto warnings = data_warnings(stats);
  ASSERT_EQ(warnings.size(), 2U);
  EXPECT_THAT(warnings[0], HasSubstr("in 1 of 4 rows a trained turn ends in a token that is not trained"));
  EXPECT_THAT(warnings[1], HasSubstr("in 1 of 4 rows an end-of-turn or EOS token occurs twice in a row"));
}

TEST_F(Prepare, TextFilesTakeNoOtherType) {
  add("a.txt", "x", {{"type", "alpaca"}});
  EXPECT_THAT(error("E-CONFIG-DATASET-TYPE"), HasSubstr("r.yaml:7: "));
}

TEST_F(Prepare, ALongTextIsOneDocument) {
  std::string text;
  while (text.size() < (size_t{8} << 20) + 1000) text += "the tiles of a mosaic are many\n";
  add("a.txt", text);
  config_.shuffle_merged_datasets = false;
  const PreparedData data = prepare();
  std::string joined;
  for (const std::string& row : texts(data.train)) joined += row;
  EXPECT_TRUE(joined == "<|bos|>" + text + "<|endoftext|>");
  EXPECT_EQ(data.train_stats[0].end_labels, 1);
}

// The micro-batches of an epoch have the numbers of tokens and labels that the statistics give, packed or
// not.
TEST_F(Prepare, PackingConservesTokensAndLabels) {
  add("a.jsonl", lines(40) + lines(30, "a somewhat longer line of words, with number "));
  for (const bool packing : {false, true}) {
    LoaderOptions options;
    options.sequence_len = config_.sequence_len;
    options.packing = packing;
    options.micro_batch_size = 3;
    options.accumulation = 2;
    const PreparedData data = prepare();
    Loader loader(data.train, options);
    int64_t tokens = 0, labels = 0;
    for (int64_t i = 0; i < loader.steps_per_epoch(); ++i) {
      for (const MicroBatch& batch : loader.next_step().micro_batches) {
        tokens += static_cast<int64_t>(batch.input_ids.size());
        labels += batch.label_tokens;
        EXPECT_LE(static_cast<int64_t>(batch.input_ids.size()), 3 * config_.sequence_len);
      }
    }
    EXPECT_EQ(loader.cursor(), (Cursor{1, 0}));
    EXPECT_EQ(tokens, data.train_stats[0].tokens);
    EXPECT_EQ(labels, data.train_stats[0].label_tokens);
  }
}

}  // namespace
}  // namespace tessera::data
