#include "tessera/data/show.h"

#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/data/control_tokens.h"
#include "tessera/data/loader_options.h"

#include "tests/data/prompt_fixture.h"
#include "tests/testing/temp_folder.h"

namespace tessera::data {
namespace {

using testing::TempFolder;

using ::testing::HasSubstr;
using ::testing::Not;

Row row_of(const std::string& masked, const std::string& trained) {
  Row row;
  for (const int32_t id : small_tokenizer().encode(masked)) {
    row.input_ids.push_back(id);
    row.labels.push_back(static_cast<int32_t>(kIgnoreLabel));
  }
  for (const int32_t id : small_tokenizer().encode(trained)) {
    row.input_ids.push_back(id);
    row.labels.push_back(id);
  }
  return row;
}

TEST(Show, MarksTrainedTokens) {
  const Row row = row_of("<|im_start|>user\n", "Hello<|im_end|>");
  EXPECT_EQ(show_row(row, small_tokenizer(), {}), "<|im_start|>user↵\n⟦Hello<|im_end|>⟧");
  EXPECT_EQ(show_row(row, small_tokenizer(), {.color = true}),
            "\x1b[2m<|im_start|>user↵\n\x1b[0m\x1b[32mHello<|im_end|>\x1b[0m");
  EXPECT_THAT(show_row(row, small_tokenizer(), {.tokens = true}), HasSubstr("<|im_start|>|user|"));
}

TEST(Show, ControlBytesAndBrokenUtf8AreEscaped) {
  Row row = row_of("a\x1b[31m\t", "\xC3\xA9");
  EXPECT_EQ(show_row(row, small_tokenizer(), {}), "a\\x1b[31m\\t⟦é⟧");
  EXPECT_EQ(show_row(row_of("\u009b2J", "\u202e"), small_tokenizer(), {}), "\\u009b2J⟦\\u202e⟧");
  row.input_ids.pop_back();
  row.labels.pop_back();
  if (small_tokenizer().encode("\xC3\xA9").size() == 2) {
    EXPECT_EQ(show_row(row, small_tokenizer(), {}), "a\\x1b[31m\\t⟦\ufffd⟧");
  }
}

TEST(Show, ReportsRowsAndCounts) {
  const TempFolder folder;
  folder.write("a.jsonl", "{\"text\": \"one tile\"}\n{\"text\": \"\"}\n{\"text\": \"two tiles\"}\n\n");
  config::Recipe recipe;
  recipe.source_folder = folder.path();
  recipe.sequence_len = 32;
  recipe.min_sample_len = 4;
  recipe.sample_packing = true;
  recipe.shuffle_merged_datasets = false;
  recipe.datasets.push_back(dataset_of({{"path", "a.jsonl"}, {"type", "completion"}}));
  const PreparedData data = prepare_data(recipe, small_tokenizer(), nullptr);

  std::ostringstream out;
  show_data(out, data, small_tokenizer(), {.num_rows = 1, .train = train_loader_options(recipe, 0, 1)});
  const std::string text = out.str();
  EXPECT_THAT(text, HasSubstr("row 0: "));
  EXPECT_THAT(text, HasSubstr("<|bos|>⟦one tile<|endoftext|>⟧"));
  EXPECT_THAT(text, Not(HasSubstr("two tiles")));
  EXPECT_THAT(text, HasSubstr("a.jsonl (completion)"));
  EXPECT_THAT(text, ::testing::ContainsRegex("records +3"));
  EXPECT_THAT(text, ::testing::ContainsRegex("blank lines +1"));
  EXPECT_THAT(text, ::testing::ContainsRegex("rows dropped: too short +1"));
  EXPECT_THAT(text, ::testing::ContainsRegex("packed sequences +1 of 32"));
  EXPECT_THAT(text, ::testing::ContainsRegex("packing efficiency +[0-9.]+ %"));
  EXPECT_THAT(text, ::testing::ContainsRegex("steps per epoch +1"));
  EXPECT_THAT(text, Not(HasSubstr("warning")));

  ShowOptions endless = {.num_rows = 0, .train = train_loader_options(recipe, 0, 1)};
  endless.has_epochs = false;
  std::ostringstream of_stream;
  show_data(of_stream, data, small_tokenizer(), endless);
  EXPECT_THAT(of_stream.str(), Not(HasSubstr("epoch")));
  EXPECT_THAT(of_stream.str(), Not(HasSubstr("packed")));
}

TEST(Show, WarnsWhenNoEndTokenIsTrained) {
  const TempFolder folder;
  folder.write("a.jsonl",
               "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", "
               "\"content\": \"b\"}]}\n");
  config::Recipe recipe;
  recipe.source_folder = folder.path();
  recipe.datasets.push_back(dataset_of({{"path", "a.jsonl"},
                                        {"type", "chat_template"},
                                        {"train_on_eos", "none"},
                                        {"chat_template_jinja",
                                         "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' + "
                                         "m['content'] + '<|im_end|>\\n' }}{% endfor %}"}}));
  const auto text_of = [&] {
    std::ostringstream out;
    show_data(out, prepare_data(recipe, small_tokenizer(), nullptr), small_tokenizer(),
              {.num_rows = 0, .train = train_loader_options(recipe, 0, 1)});
    return out.str();
  };
  EXPECT_THAT(text_of(), HasSubstr("warning: no end-of-turn or EOS token is trained"));
  recipe.datasets[0].train_on_eos = "turn";
  EXPECT_THAT(text_of(), Not(HasSubstr("warning")));
}

// Data of four rows: one is in both sets, one is too long, one has no answer, and one spells a control token.
struct ShownData {
  ShownData() {
    folder.write(
        "a.jsonl",
        "{\"instruction\": \"q\", \"output\": \"<b>&\\u0001 <|im_end|>\"}\n"
        "{\"instruction\": \"q\", \"output\": \"" +
            std::string(400, 'x') +
            "\"}\n"
            "{\"instruction\": \"q\", \"output\": \"\"}\n{\"instruction\": \"q\", \"output\": \"same\"}\n");
    folder.write("b.jsonl", "{\"instruction\": \"q\", \"output\": \"same\"}\n");
    recipe.source_folder = folder.path();
    recipe.sequence_len = 200;
    recipe.sample_packing = true;
    recipe.shuffle_merged_datasets = false;
    recipe.datasets.push_back(dataset_of({{"path", "a.jsonl"}, {"type", "alpaca"}}));
    recipe.test_datasets.push_back(dataset_of({{"path", "b.jsonl"}, {"type", "alpaca"}}));
    data = prepare_data(recipe, small_tokenizer(), nullptr);
    options.train = train_loader_options(recipe, 0, 1);
    options.eval = eval_loader_options(recipe, 0, 1);
  }

  const TempFolder folder;
  config::Recipe recipe;
  PreparedData data;
  ShowOptions options = {.num_rows = 10};
};

TEST(Show, WarnsWithCounts) {
  const ShownData shown;
  std::ostringstream out;
  show_data(out, shown.data, small_tokenizer(), shown.options);
  EXPECT_THAT(out.str(), HasSubstr("warning: 1 row dropped: longer than sequence_len (200)"));
  EXPECT_THAT(out.str(), HasSubstr("warning: 1 row dropped: no label is left"));
  EXPECT_THAT(out.str(), HasSubstr("warning: 1 of 4 records spell a control token"));
  EXPECT_THAT(out.str(), HasSubstr("warning: 1 of 1 rows are also training rows"));
}

TEST(Show, EachTokenHasALine) {
  ShownData shown;
  shown.options.num_rows = 1;
  shown.options.each_token = true;
  std::ostringstream out;
  show_data(out, shown.data, small_tokenizer(), shown.options);
  const int64_t eos = *small_tokenizer().eos_id();
  EXPECT_THAT(out.str(), HasSubstr("row 0: a, "));
  EXPECT_THAT(out.str(), ::testing::ContainsRegex("      0 +" + std::to_string(*small_tokenizer().bos_id()) +
                                                  "  masked  '<.bos.>'"));
  EXPECT_THAT(out.str(), ::testing::ContainsRegex(" " + std::to_string(eos) + "  trained '<.endoftext.>'"));
}

TEST(Show, ThePageHoldsEveryTokenAndNeedsNothingElse) {
  const ShownData shown;
  const std::string page = show_data_html(shown.data, small_tokenizer(), shown.options, "a <recipe>.yaml");
  EXPECT_TRUE(page.starts_with("<!DOCTYPE html>"));
  EXPECT_THAT(page, HasSubstr("<title>a &lt;recipe&gt;.yaml</title>"));
  EXPECT_THAT(page, HasSubstr("Sequence 0 of the first epoch: "));
  EXPECT_THAT(page, HasSubstr("document 0: a, "));
  EXPECT_THAT(page, HasSubstr("&lt;</b>"));
  EXPECT_THAT(page, HasSubstr("\\x01"));
  EXPECT_THAT(page, Not(HasSubstr("\x01")));
  EXPECT_THAT(page, HasSubstr("<p class=\"warning\">warning: 1 of 1 rows are also training rows"));
  for (const char* outside : {"http:", "https:", "<script", "src=", "<link"})
    EXPECT_THAT(page, Not(HasSubstr(outside)));
  int64_t tokens = 0;
  for (size_t at = page.find(", place "); at != std::string::npos; at = page.find(", place ", at + 1))
    ++tokens;
  EXPECT_EQ(tokens, shown.data.train.store->length(shown.data.train.rows[0]) +
                        shown.data.train.store->length(shown.data.train.rows[1]));
}

TEST(Show, RowsOfAStreamAreItsSequences) {
  ShownData shown;
  shown.options.has_epochs = false;
  const std::string page = show_data_html(shown.data, small_tokenizer(), shown.options, "r");
  EXPECT_THAT(page, HasSubstr("<h3>sequence 0: a, "));
  EXPECT_THAT(page, HasSubstr(", sequence 1, a\">"));
  EXPECT_THAT(page, Not(HasSubstr("document 0")));
  EXPECT_THAT(page, Not(HasSubstr("of the run")));
}

// The second row is shown twice, once in one sequence with the first.
TEST(Show, OfACurriculumWhatARunTakesFirst) {
  ShownData shown;
  const auto& rows = shown.data.train.rows;
  ASSERT_GE(rows.size(), 2U);
  shown.options.has_epochs = false;
  shown.options.drawn = {{shown.data.train.store, {rows[1], rows[1], rows[0]}}, {{0, 1, 3}, {0, 1, 2}}};
  const std::string page = show_data_html(shown.data, small_tokenizer(), shown.options, "r");
  const auto heading = [&](int64_t document) {
    return "document " + std::to_string(document) + ": a, " +
           std::to_string(shown.data.train.length(document == 2 ? 0 : 1)) + " tokens";
  };
  size_t at = 0;
  for (const std::string& part :
       {std::string("Sequence 0 of the run: 1 document<"), heading(0),
        std::string("Sequence 1 of the run: 2 documents"), heading(1), heading(2)}) {
    at = page.find(part, at);
    ASSERT_NE(at, std::string::npos) << part;
  }
  shown.options.num_rows = 1;
  std::ostringstream out;
  show_data(out, shown.data, small_tokenizer(), shown.options);
  EXPECT_THAT(out.str(), HasSubstr(show_row(shown.data.train.store->row(rows[1]), small_tokenizer(), {})));
}

TEST(ControlTokensTest, FindsWhatATextSpells) {
  const ControlTokens tokens(small_tokenizer());
  EXPECT_TRUE(tokens.are_in("a <|im_end|> b"));
  EXPECT_TRUE(tokens.are_in("<|endoftext|>"));
  EXPECT_TRUE(tokens.are_in("<<|eot_id|>"));
  EXPECT_TRUE(tokens.are_in("</s>"));
  EXPECT_FALSE(tokens.are_in("<|im_en|> <| <b> im_end|> <"));
  EXPECT_FALSE(tokens.are_in(""));
}

}  // namespace
}  // namespace tessera::data
