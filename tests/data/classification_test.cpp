// Tests of rows of texts with labels.
#include "tessera/data/prompts/classification.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/data/loader.h"
#include "tessera/data/row_file.h"

#include "tests/data/expect_error.h"
#include "tests/data/prompt_fixture.h"
#include "tests/testing/temp_folder.h"

namespace tessera::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const text::Tokenizer& bert_tokenizer() {
  static const text::Tokenizer tokenizer = text::Tokenizer::from_file(
      testing::source_folder() + "/tests/reference/data/tokenizer_kinds/bert.json");
  return tokenizer;
}

Row row_of(const ClassificationRows& rows, const Json& record, const config::DatasetConfig& dataset = {},
           const config::DataConfig& config = {}) {
  const PromptContext context{config, &bert_tokenizer(), nullptr, 0, {}, &rows};
  std::vector<Row> made;
  make_prompt_type(dataset, context)->tokenize({record}, made);
  EXPECT_EQ(made.size(), 1U);
  return made.front();
}

const ClassificationRows kTwo{{ProblemType::SingleLabel, {"no", "yes"}}, true, {}};

TEST(ClassificationRows, PairsHaveTypesAndTheFirstTokenIsRead) {
  const Row row = row_of(kTwo, {{"sentence1", "the cat"}, {"sentence2", "a dog"}, {"label", 1}, {"idx", 7}});
  const auto want = bert_tokenizer().encode_pair("the cat", "a dog");
  EXPECT_EQ(row.input_ids, want.ids);
  EXPECT_EQ(row.type_ids, want.type_ids);
  EXPECT_EQ(row.type_ids.back(), 1);
  EXPECT_THAT(row.targets, ElementsAre(1.0F));
  EXPECT_EQ(row.labels[0], row.input_ids[0]);
  EXPECT_EQ(count_trained(row), 1);
}

TEST(ClassificationRows, TheLastTokenIsReadThatIsNoPadding) {
  ClassificationRows rows = kTwo;
  rows.reads_first = false;
  Row row = row_of(rows, {{"text", "the cat"}, {"label", "no"}});
  EXPECT_TRUE(row.type_ids.empty());
  EXPECT_EQ(row.labels.back(), row.input_ids.back());
  rows.pad_token_id = row.input_ids.back();
  row = row_of(rows, {{"text", "the cat"}, {"label", "no"}});
  EXPECT_EQ(row.labels.back(), kIgnoreLabel);
  EXPECT_EQ(row.labels[row.labels.size() - 2], row.input_ids[row.labels.size() - 2]);
}

TEST(ClassificationRows, LabelsOfAllKinds) {
  const ClassificationRows several{{ProblemType::MultiLabel, {"a", "b", "c"}}, true, {}},
      number{{ProblemType::Regression, {"score"}}, true, {}};
  const auto targets = [](const ClassificationRows& rows, const Json& label) {
    return row_of(rows, {{"text", "x"}, {"label", label}}).targets;
  };
  EXPECT_THAT(targets(kTwo, "yes"), ElementsAre(1.0F));
  EXPECT_THAT(targets(kTwo, true), ElementsAre(1.0F));
  EXPECT_THAT(targets(kTwo, "1"), ElementsAre(1.0F)) << "as in a CSV file";
  EXPECT_THAT(targets(number, "-2.5"), ElementsAre(-2.5F));
  EXPECT_THAT(targets(several, {"c", "a"}), ElementsAre(1.0F, 0.0F, 1.0F));
  EXPECT_THAT(targets(several, {0, 1, 0}), ElementsAre(0.0F, 1.0F, 0.0F));
  EXPECT_THAT(targets(number, 3.5), ElementsAre(3.5F));
  EXPECT_TRUE(targets(kTwo, -1).empty());
  EXPECT_TRUE(targets(kTwo, nullptr).empty());
  EXPECT_THAT(error_text("E-DATA-CLASS-LABEL", [&] { targets(kTwo, "maybe"); }), HasSubstr("need no, yes"));
  EXPECT_THAT(error_text("E-DATA-CLASS-LABEL", [&] { targets(kTwo, 2); }), HasSubstr("got 2"));
  EXPECT_THAT(error_text("E-DATA-CLASS-LABEL", [&] { targets(several, {0, 1}); }), HasSubstr("need 3"));
  EXPECT_THAT(error_text("E-DATA-MISSING-FIELD", [&] { row_of(kTwo, {{"text", "x"}}); }), HasSubstr("label"));
}

TEST(ClassificationRows, TheLongerTextIsCut) {
  config::DataConfig config;
  config.excess_length_strategy = config::ExcessLength::Truncate;
  config.sequence_len = 9;
  const Row whole =
      row_of(kTwo, {{"text", "a"}, {"text_pair", "the cat the cat the cat the cat"}, {"label", 0}});
  const Row row = row_of(
      kTwo, {{"text", "a"}, {"text_pair", "the cat the cat the cat the cat"}, {"label", 0}}, {}, config);
  ASSERT_GT(whole.input_ids.size(), 9U);
  ASSERT_EQ(row.input_ids.size(), 9U);
  EXPECT_TRUE(std::equal(row.input_ids.begin(), row.input_ids.end() - 1, whole.input_ids.begin()));
  EXPECT_EQ(row.input_ids.back(), whole.input_ids.back());
}

TEST(ClassificationRows, ColumnsAreFoundOrNamed) {
  config::DatasetConfig dataset;
  dataset.field = "left";
  dataset.field_text_pair = "right";
  dataset.field_label = "gold";
  const Row row = row_of(kTwo, {{"left", "a"}, {"right", "b"}, {"gold", 1}}, dataset);
  EXPECT_EQ(row.input_ids, bert_tokenizer().encode_pair("a", "b").ids);
  EXPECT_EQ(find_text_columns({{"question", "x"}, {"sentence", "y"}}, {}).second, "sentence");
  EXPECT_EQ(find_text_columns({{"sentence", "y"}}, {}).second, "");
}

// Rows keep targets and types in memory and in files, and micro-batches have them.
TEST(ClassificationRows, StoreFileAndBatch) {
  testing::TempFolder folder;
  const std::vector<Row> rows = {row_of(kTwo, {{"text", "a"}, {"text_pair", "b"}, {"label", 1}}),
                                 row_of(kTwo, {{"text", "the cat"}, {"label", 0}}),
                                 row_of(kTwo, {{"text", "a"}, {"label", nullptr}})};
  RowFileWriter writer(folder / "rows");
  for (const Row& row : rows) writer.append(row);
  writer.finish({});
  const auto in_memory = std::make_shared<RowStore>(), in_file = std::make_shared<RowStore>();
  for (const Row& row : rows) in_memory->append(row);
  in_file->append(RowFile::open(folder / "rows"));
  for (const auto& store : {in_memory, in_file}) {
    for (int64_t i = 0; i < 3; ++i) {
      const Row back = store->row(i);
      EXPECT_EQ(back.input_ids, rows[i].input_ids);
      EXPECT_EQ(back.labels, rows[i].labels);
      EXPECT_EQ(back.type_ids, rows[i].type_ids);
      EXPECT_EQ(back.targets, rows[i].targets);
    }
    EXPECT_EQ(store->label_count(0), 1);
    Loader loader({store, {0, 1}}, {.micro_batch_size = 2, .shuffle = false});
    const Step step = loader.next_step();
    const MicroBatch& batch = step.micro_batches.front();
    EXPECT_EQ(step.label_tokens, 2);
    EXPECT_THAT(batch.targets, ElementsAre(1.0, 0.0));
    EXPECT_EQ(batch.labels[0], 0);
    EXPECT_EQ(batch.labels[rows[0].input_ids.size()], 1);
    EXPECT_EQ(batch.type_ids.size(), batch.input_ids.size());
    EXPECT_EQ(std::ranges::count(batch.labels, kIgnoreLabel), std::ssize(batch.labels) - 2);
  }
  EXPECT_NE(in_memory->hash(1), hash_of_row(in_memory->tokens(1), in_memory->label_runs(1)));
}

TEST(FindClasses, OfTheLabelsOfAllRecords) {
  testing::TempFolder folder;
  const auto found = [&](const std::string& labels) {
    std::string text;
    for (const Json& label : Json::parse(labels)) text += Json{{"text", "x"}, {"label", label}}.dump() + "\n";
    io::write_file_atomic(folder / "rows.jsonl", text);
    config::DataConfig config;
    config.datasets.emplace_back().path = folder / "rows.jsonl";
    return find_classes(config, {});
  };
  EXPECT_EQ(found("[0, 2, -1, 1]").labels, default_labels(3));
  EXPECT_EQ(found("[\"b\", \"a\", \"b\"]").labels, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(found("[0.5, 1.0]").problem, ProblemType::Regression);
  EXPECT_EQ(found("[\"0\", \"1\"]").labels, default_labels(2)) << "as in a CSV file";
  EXPECT_EQ(found("[\"0.5\", \"1\"]").problem, ProblemType::Regression);
  EXPECT_EQ(found("[\"0.5\", \"b\"]").labels, (std::vector<std::string>{"0.5", "b"}));
  EXPECT_EQ(found("[[0, 1, 1], [0, 0, 0]]").problem, ProblemType::MultiLabel);
  EXPECT_EQ(found("[[0, 1, 1], [0, 0, 0]]").num_labels(), 3);
  EXPECT_EQ(found("[[\"b\"], [\"a\", \"b\"]]").labels, (std::vector<std::string>{"a", "b"}));
  EXPECT_THAT(error_text("E-DATA-LABELS", [&] { found("[null]"); }), HasSubstr("num_labels"));
}

}  // namespace
}  // namespace tessera::data
