// Tests of rows of words with labels, and of pairs of texts.
#include "tessera/data/prompts/token_classification.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/data/loader.h"
#include "tessera/data/prompts/reward.h"

#include "tests/data/expect_error.h"
#include "tests/data/prompt_fixture.h"
#include "tests/testing/temp_folder.h"

namespace tessera::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const text::Tokenizer& word_pieces() {
  static const text::Tokenizer tokenizer = text::Tokenizer::from_file(
      testing::source_folder() + "/tests/reference/data/tokenizer_kinds/bert.json");
  return tokenizer;
}

const ClassificationRows kTags{.classes = {ProblemType::Tokens, {"O", "B-x", "I-x"}}};
const std::vector<std::string> kWords = {"The", "cat's", "New", "Harbour", ",", "x"};

Row row_of(const ClassificationRows& rows, const Json& record, const text::Tokenizer& tokenizer,
           const config::DatasetConfig& dataset = {}, const config::DataConfig& config = {}) {
  const PromptContext context{config, &tokenizer, nullptr, 0, {}, &rows};
  std::vector<Row> made;
  make_prompt_type(dataset, context)->tokenize({record}, made);
  EXPECT_EQ(made.size(), 1U);
  return made.front();
}

// Ids and words are those of `tokenizers` with is_pretokenized, and with add_prefix_space for bytes.
TEST(TokenClassificationRows, WordsAreEncodedAsTransformersDoes) {
  const WordRow pieces = WordEncoder(word_pieces()).encode(kWords, std::nullopt);
  EXPECT_THAT(pieces.row.input_ids,
              ElementsAre(1, 159, 332, 97, 8, 55, 50, 95, 129, 45, 395, 101, 369, 102, 13, 60, 2));
  EXPECT_THAT(pieces.first_tokens, ElementsAre(1, 2, 6, 9, 14, 15));
  EXPECT_THAT(pieces.word_of_token, ElementsAre(-1, 0, 1, 1, 1, 1, 2, 2, 2, 3, 3, 3, 3, 3, 4, 5, -1));
  const WordRow bytes = WordEncoder(small_tokenizer()).encode(kWords, std::nullopt);
  EXPECT_THAT(bytes.row.input_ids, ElementsAre(0, 331, 76, 297, 274, 14, 90, 228, 53, 76, 94, 228, 47, 72, 89,
                                               73, 318, 89, 228, 19, 228, 95));
  EXPECT_THAT(bytes.first_tokens, ElementsAre(1, 3, 7, 11, 18, 20));
  const WordRow cut = WordEncoder(word_pieces()).encode(kWords, 8);
  EXPECT_THAT(cut.row.input_ids, ElementsAre(1, 159, 332, 97, 8, 55, 50, 2));
  EXPECT_THAT(cut.first_tokens, ElementsAre(1, 2, 6, -1, -1, -1));
}

TEST(TokenClassificationRows, TheFirstTokenOfAWordHasItsLabel) {
  const Json record = {{"tokens", {"cat's", "x", "The", "x"}}, {"ner_tags", {"B-x", 2, nullptr, -100}}};
  Row row = row_of(kTags, record, word_pieces());
  ASSERT_EQ(row.input_ids.size(), 9U);
  EXPECT_THAT(row.targets, ElementsAre(1, 2));
  EXPECT_EQ(row.labels[1], row.input_ids[1]);
  EXPECT_EQ(row.labels[2], kIgnoreLabel);
  EXPECT_EQ(row.labels[5], row.input_ids[5]);
  EXPECT_EQ(count_trained(row), 2);
  ClassificationRows all = kTags;
  all.labels_all_tokens = true;
  EXPECT_THAT(row_of(all, record, word_pieces()).targets, ElementsAre(1, 2, 2, 2, 2)) << "I-x behind B-x";
  EXPECT_TRUE(row_of(kTags, {{"words", {"x"}}, {"tags", nullptr}}, word_pieces()).targets.empty());
  config::DatasetConfig named;
  named.field = "w";
  named.field_label = "t";
  EXPECT_THAT(row_of(kTags, {{"w", {"x"}}, {"t", {0}}}, word_pieces(), named).targets, ElementsAre(0));
}

TEST(TokenClassificationRows, WhatDoesNotFitIsRefused) {
  const std::tuple<Json, const char*, const char*> cases[] = {
      {{{"tokens", {"x", "y"}}, {"ner_tags", {0}}}, "FIELD-SIZE", "got 1 labels, need 2"},
      {{{"tokens", {"x"}}, {"ner_tags", {"B-y"}}}, "CLASS-LABEL", "got \"B-y\", need O, B-x, I-x"},
      {{{"tokens", {"x"}}, {"ner_tags", {3}}}, "CLASS-LABEL", "got 3"},
      {{{"tokens", "x y"}, {"ner_tags", {0, 0}}}, "FIELD-TYPE", "no list of words"},
      {{{"tokens", {1}}, {"ner_tags", {0}}}, "FIELD-TYPE", "no text"},
      {{{"tokens", {"x"}}}, "MISSING-FIELD", "ner_tags"}};
  for (const auto& [record, code, part] : cases) {
    EXPECT_THAT(error_text(std::string("E-DATA-") + code, [&] { row_of(kTags, record, word_pieces()); }),
                HasSubstr(part));
  }
}

TEST(TokenClassificationRows, ClassesAreThoseOfAllWords) {
  testing::TempFolder folder;
  io::write_file_atomic(folder / "rows.jsonl",
                        "{\"tokens\":[\"a\",\"b\"],\"ner_tags\":[\"O\",\"I-x\"]}\n"
                        "{\"tokens\":[\"a\"],\"ner_tags\":[\"B-x\"]}\n");
  config::DataConfig config;
  config.datasets.emplace_back().path = folder / "rows.jsonl";
  const Classification found = find_classes(config, ProblemType::Tokens);
  EXPECT_EQ(found.labels, (std::vector<std::string>{"B-x", "I-x", "O"}));
  EXPECT_TRUE(found.of_tokens());
}

const ClassificationRows kReward{
    .classes = {.problem = ProblemType::Regression, .labels = {"r"}}, .reads_first = false, .of_pairs = true};

TEST(RewardRows, APairIsOneRow) {
  const Json record = {{"prompt", "The"}, {"chosen", " cat"}, {"rejected", " x y"}, {"margin", 0.5}};
  const Row row = row_of(kReward, record, small_tokenizer());
  const auto better = small_tokenizer().encode("The cat", {.add_special_tokens = true}),
             other = small_tokenizer().encode("The x y", {.add_special_tokens = true});
  const size_t first = better.size() + 1, whole = first + other.size() + 1;  // with EOS
  ASSERT_EQ(row.input_ids.size(), whole);
  EXPECT_EQ(row.input_ids[first - 1], *small_tokenizer().eos_id());
  EXPECT_TRUE(std::equal(other.begin(), other.end(), row.input_ids.begin() + static_cast<int64_t>(first)));
  EXPECT_EQ(std::ranges::count(row.type_ids, 1), std::ssize(other) + 1);
  EXPECT_THAT(row.targets, ElementsAre(0.5F, 0.5F));
  EXPECT_EQ(count_trained(row), 2);
  EXPECT_NE(row.labels[first - 1], kIgnoreLabel);
  EXPECT_NE(row.labels[whole - 1], kIgnoreLabel);

  const auto store = std::make_shared<RowStore>();
  store->append(row);
  store->append(row);
  store->set_pairs(true);
  Loader loader({store, {0, 1}}, {.micro_batch_size = 2, .shuffle = false});
  const MicroBatch batch = loader.next_step().micro_batches.front();
  const auto f = static_cast<int64_t>(first), w = static_cast<int64_t>(whole);
  EXPECT_THAT(batch.document_starts, ElementsAre(0, f, w, w + f, 2 * w));
  EXPECT_THAT(batch.sequence_starts, ElementsAre(0, w, 2 * w));
  EXPECT_EQ(batch.position_ids[first], 0);
  EXPECT_TRUE(batch.type_ids.empty());
  EXPECT_EQ(batch.labels[whole - 1], 1);
  EXPECT_EQ(batch.label_tokens, 4);
}

TEST(RewardRows, ChatsAreWrittenByTheTemplate) {
  config::DatasetConfig dataset;
  dataset.chat_template = "chatml";
  const Json question = {{"role", "user"}, {"content", "The?"}},
             good = {{"role", "assistant"}, {"content", "cat"}},
             bad = {{"role", "assistant"}, {"content", "x"}};
  const Row lists = row_of(kReward, {{"chosen", {question, good}}, {"rejected", {question, bad}}},
                           small_tokenizer(), dataset);
  EXPECT_EQ(row_of(kReward,
                   {{"prompt", Json::array({question})},
                    {"chosen", Json::array({good})},
                    {"rejected", Json::array({bad})}},
                   small_tokenizer(), dataset)
                .input_ids,
            lists.input_ids);
  dataset.type = "bradley_terry.chat_template";
  EXPECT_EQ(
      row_of(kReward, {{"input", "The?"}, {"chosen", "cat"}, {"rejected", "x"}}, small_tokenizer(), dataset)
          .input_ids,
      lists.input_ids);
  EXPECT_THAT(small_tokenizer().decode(lists.input_ids), HasSubstr("<|im_start|>assistant\ncat<|im_end|>"));
  dataset.type = "chatml.intel";
  const Row wrapped = row_of(kReward, {{"question", "The?"}, {"chosen", "cat"}, {"rejected", "x"}},
                             small_tokenizer(), dataset);
  EXPECT_EQ(wrapped.targets.size(), 2U);
  EXPECT_THAT(
      error_text("E-DATA-FIELD-TYPE",
                 [&] {
                   row_of(kReward, {{"chosen", "a"}, {"rejected", "b"}, {"margin", "c"}}, small_tokenizer());
                 }),
      HasSubstr("margin"));
}

}  // namespace
}  // namespace tessera::data
