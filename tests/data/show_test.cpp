#include "tessera/data/show.h"

#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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
  EXPECT_THAT(text, Not(HasSubstr("warning")));
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
  EXPECT_THAT(text_of(), HasSubstr("warning: no end-of-turn or EOS token is ever trained"));
  recipe.datasets[0].train_on_eos = "turn";
  EXPECT_THAT(text_of(), Not(HasSubstr("warning")));
}

}  // namespace
}  // namespace tessera::data
