// Tests of rows of sources and targets.
#include "tessera/data/prompts/seq2seq.h"

#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/data/loader.h"

#include "tests/data/expect_error.h"
#include "tests/data/prompt_fixture.h"
#include "tests/testing/paths.h"

namespace tessera::data {
namespace {

using ::testing::HasSubstr;

// A Unigram model with T5's character map and end token, and the tokens that T5Tokenizer makes with it.
const std::string& t5_folder() {
  static const std::string folder = testing::source_folder() + "/tests/reference/data/seq2seq/training";
  return folder;
}

const text::Tokenizer& t5_tokenizer() {
  static const text::Tokenizer tokenizer = text::Tokenizer::from_folder(t5_folder());
  return tokenizer;
}

std::vector<Row> rows_of(const Json& record, const config::DatasetConfig& dataset = {},
                         const config::DataConfig& config = {}) {
  const Seq2SeqRows seq2seq{5};
  const PromptContext context{config, &t5_tokenizer(), nullptr, 0, {}, nullptr, &seq2seq};
  std::vector<Row> made;
  make_prompt_type(dataset, context)->tokenize({record}, made);
  return made;
}

std::vector<int32_t> ids_of(const std::string& text) {
  return t5_tokenizer().encode(text, {.parse_special = true, .add_special_tokens = true});
}

Row want_row(const std::string& source, const std::string& target) {
  Row row;
  row.input_ids = ids_of(source);
  row.type_ids.assign(row.input_ids.size(), 0);
  row.input_ids.push_back(5);
  row.labels.assign(row.input_ids.size(), static_cast<int32_t>(kIgnoreLabel));
  for (const int32_t id : ids_of(target)) {
    row.input_ids.push_back(id);
    row.labels.push_back(id);
  }
  row.type_ids.resize(row.input_ids.size(), 1);
  return row;
}

void expect_row(const Json& record, const config::DatasetConfig& dataset, const std::string& source,
                const std::string& target) {
  const std::vector<Row> made = rows_of(record, dataset);
  ASSERT_EQ(made.size(), 1U);
  const Row want = want_row(source, target);
  EXPECT_EQ(made[0].input_ids, want.input_ids);
  EXPECT_EQ(made[0].labels, want.labels);
  EXPECT_EQ(made[0].type_ids, want.type_ids);
}

config::DatasetConfig of_type(const std::string& type) {
  config::DatasetConfig dataset;
  dataset.type = type;
  return dataset;
}

TEST(Seq2SeqRows, TokensAreThoseOfT5Tokenizer) {
  const Json expected = Json::parse(std::ifstream(t5_folder() + "/expected.json"));
  for (const Json& text : expected["tokens"])
    EXPECT_EQ(ids_of(text["text"]), text["ids"].get<std::vector<int32_t>>()) << text["text"];
  EXPECT_EQ(t5_tokenizer().eos_id(), 1);
}

TEST(Seq2SeqRows, ColumnsOfASourceAndATarget) {
  expect_row({{"input", "the fox"}, {"target", "a dog"}}, {}, "the fox", "a dog");
  expect_row({{"question", "the fox"}, {"answer", "a dog"}, {"id", 3}}, {}, "the fox", "a dog");
  expect_row({{"document", "the fox"}, {"summary", "a dog"}}, {}, "the fox", "a dog");
  config::DatasetConfig named;
  named.field_input = "from";
  named.field_target = "to";
  expect_row({{"from", "the fox"}, {"to", "a dog"}, {"input", "x"}, {"target", "y"}}, named, "the fox",
             "a dog");
  EXPECT_THAT(error_text("E-DATA-MISSING-FIELD", [] { rows_of({{"input", "x"}}); }), HasSubstr("target"));
  EXPECT_THAT(error_text("E-DATA-MISSING-FIELD", [&] { rows_of({{"from", "x"}}, named); }), HasSubstr("to"));
}

TEST(Seq2SeqRows, OtherTypesAreReadAsPromptAndAnswer) {
  config::DatasetConfig own = of_type("user_defined");
  own.format = "swap: {instruction} {input}";
  own.no_input_format = "swap: {instruction}";
  expect_row({{"instruction", "the fox"}, {"output", "a dog"}}, own, "swap: the fox", "a dog");
  expect_row({{"prompt", "the fox"}, {"completion", "a dog"}}, of_type("prompt_completion"), "the fox",
             "a dog");
  const std::vector<Row> alpaca =
      rows_of({{"instruction", "the fox"}, {"input", ""}, {"output", "a dog"}}, of_type("alpaca"));
  EXPECT_EQ(alpaca[0].labels.back(), 1);
  EXPECT_EQ(alpaca[0].type_ids.front(), 0);
  const auto message = [](const char* role, const char* content) {
    return Json{{"role", role}, {"content", content}};
  };
  expect_row({{"messages",
               {message("system", "one"), message("user", "two"), message("assistant", "three"),
                message("user", "four"), message("assistant", "five"), message("user", "unanswered")}}},
             of_type("chat_template"), "one\ntwo\nthree\nfour", "five");
  EXPECT_THAT(error_text("E-DATA-CONVERSATION",
                         [&] {
                           rows_of({{"messages", {message("user", "two")}}}, of_type("chat_template"));
                         }),
              HasSubstr("no answer"));
  EXPECT_THAT(error_text("E-CONFIG-DATASET-TYPE",
                         [] {
                           rows_of({{"text", "x"}}, of_type("completion"));
                         }),
              HasSubstr("type 'completion' has no source and target"));
}

TEST(Seq2SeqRows, ALongRowLosesTheEndOfItsSourceFirst) {
  const std::string source = "the fox jumps over the fence", target = "a dog";
  const Row whole = want_row(source, target);
  const auto num_source = std::ssize(ids_of(source)), num_target = std::ssize(ids_of(target));
  const auto cut = [&](int64_t most) {
    config::DataConfig config;
    config.excess_length_strategy = config::ExcessLength::Truncate;
    config.sequence_len = most;
    return rows_of({{"input", source}, {"target", target}}, {}, config)[0];
  };
  const auto size = std::ssize(whole.input_ids);
  EXPECT_EQ(cut(size).input_ids, whole.input_ids);
  const Row shorter = cut(size - 2);
  EXPECT_EQ(std::ssize(shorter.input_ids), size - 2);
  EXPECT_EQ(std::ranges::count(shorter.type_ids, 0), num_source - 2);
  EXPECT_EQ(shorter.input_ids[static_cast<size_t>(num_source) - 3], 1) << "the end of the source stays";
  EXPECT_EQ(shorter.input_ids[0], whole.input_ids[0]);
  EXPECT_EQ(count_trained(shorter), num_target);
  const Row shortest = cut(4);
  EXPECT_EQ(shortest.input_ids,
            (std::vector<int32_t>{1, 5, whole.input_ids[static_cast<size_t>(num_source) + 1], 1}));
  EXPECT_EQ(rows_of({{"input", "x"}, {"target", ""}})[0].input_ids.size(), 0U) << "dropped as too short";
}

}  // namespace
}  // namespace tessera::data
