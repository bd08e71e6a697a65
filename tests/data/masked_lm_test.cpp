// Tests of rows of plain texts, and of the masks over them.
#include "tessera/data/prompts/masked_lm.h"

#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/data/loader.h"
#include "tessera/data/token_masks.h"

#include "tests/data/expect_error.h"
#include "tests/data/prompt_fixture.h"
#include "tests/testing/temp_folder.h"

namespace tessera::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// WordPiece, or byte-level BPE, whose tokens hold the space before a word.
text::Tokenizer tokenizer_of(const std::string& name) {
  return text::Tokenizer::from_file(testing::source_folder() + "/tests/reference/data/" + name);
}

std::vector<Row> rows_of(const text::Tokenizer& tokenizer, const MaskedRows& masked, const std::string& text,
                         int64_t sequence_len = 512) {
  config::DataConfig config;
  config.sequence_len = sequence_len;
  const PromptContext context{config, &tokenizer, nullptr, 0, {}, nullptr, nullptr, &masked};
  std::vector<Row> rows;
  make_prompt_type({}, context)->tokenize({{{"text", text}}}, rows);
  return rows;
}

TEST(MaskedRowsTest, PiecesHaveTheirSpecialTokensWithoutLabels) {
  const text::Tokenizer tokenizer = tokenizer_of("tokenizer_kinds/bert.json");
  const auto whole = tokenizer.encode_pair("the cat sat on the mat", std::nullopt);
  const auto content = std::vector<int32_t>(whole.ids.begin() + 1, whole.ids.end() - 1);
  for (const bool is_model : {false, true}) {
    const MaskedRows masked{false, is_model ? std::optional<int64_t>(5) : std::nullopt};
    std::vector<int32_t> joined;
    for (const Row& row : rows_of(tokenizer, masked, "the cat sat on the mat", is_model ? 512 : 5)) {
      EXPECT_LE(row.input_ids.size(), 5U);
      EXPECT_EQ(row.input_ids.front(), whole.ids.front());
      EXPECT_EQ(row.input_ids.back(), whole.ids.back());
      for (size_t i = 0; i < row.labels.size(); ++i) {
        const bool is_special = i == 0 || i + 1 == row.labels.size();
        EXPECT_EQ(row.labels[i], is_special ? kIgnoreLabel : row.input_ids[i]);
        if (!is_special) joined.push_back(row.input_ids[i]);
      }
      EXPECT_TRUE(row.run_starts.empty());
    }
    EXPECT_EQ(joined, content);
  }
  EXPECT_TRUE(rows_of(tokenizer, {}, " ").front().input_ids.empty()) << "dropped as too short";
  EXPECT_THAT(error_text("E-CONFIG-SEQUENCE-LEN", [&] { rows_of(tokenizer, {}, "the cat", 2); }),
              HasSubstr("need a sequence_len of at least 3"));
}

// Words are what stands without white space between, as Transformers' collator has them.
TEST(MaskedRowsTest, RunsAreWholeWords) {
  const std::string text = "the unbelievable cat, don't sit";
  for (const char* kind : {"tokenizer_kinds/bert.json", "prompts/tokenizer.json"}) {
    const text::Tokenizer tokenizer = tokenizer_of(kind);
    const Row row = rows_of(tokenizer, {.whole_words = true}, text).front();
    const auto store = std::make_shared<RowStore>();
    store->append(row);
    std::vector<std::string> words;
    for (const LabelRun& run : store->label_runs(0)) {
      const auto ids =
          store->tokens(0).subspan(static_cast<size_t>(run.begin), static_cast<size_t>(run.end - run.begin));
      std::string word = tokenizer.decode(ids);
      std::erase(word, ' ');
      words.push_back(word);
    }
    EXPECT_THAT(words, ElementsAre("the", "unbelievable", "cat,", "don't", "sit")) << kind;
    EXPECT_EQ(store->row(0).run_starts.size() + 1, words.size());
  }
}

std::map<std::string, double> shares_of(const MaskOptions& options) {
  constexpr int32_t kTokens = 20'000;
  std::map<std::string, double> shares;
  std::vector<LabelRun> runs;
  for (int32_t i = 0; i < kTokens; i += 2) runs.push_back({i, i + 2});
  for (const MaskedToken& token : TokenMasks(options).draw(runs, 3, 1)) {
    shares["all"] += 1.0 / kTokens;
    shares[!token.shown ? "kept" : *token.shown == options.mask_token_id ? "mask" : "other"] += 1.0 / kTokens;
    EXPECT_LT(token.shown.value_or(0), options.vocab_size);
  }
  return shares;
}

TEST(TokenMasksTest, SharesAreThoseOfTheOptions) {
  for (const bool whole_runs : {false, true}) {
    MaskOptions options{.mask_token_id = 4, .vocab_size = 5000, .whole_runs = whole_runs};
    auto shares = shares_of(options);
    EXPECT_NEAR(shares["all"], 0.15, 0.012);
    EXPECT_NEAR(shares["mask"], 0.12, 0.012);
    EXPECT_NEAR(shares["other"], 0.015, 0.005);
    EXPECT_NEAR(shares["kept"], 0.015, 0.005);
    options.probability = 1.0;
    options.mask_share = options.random_share = 0.0;
    shares = shares_of(options);
    EXPECT_NEAR(shares["kept"], 1.0, 1e-9);
  }
}

TEST(TokenMasksTest, EveryRowHasOneAndRunsAreMaskedWhole) {
  const std::vector<LabelRun> runs = {{1, 3}, {3, 4}, {6, 9}};
  MaskOptions options{.probability = 1e-9, .whole_runs = true};
  std::map<int32_t, int> first;
  for (int64_t place = 0; place < 60; ++place) {
    const auto masked = TokenMasks(options).draw(runs, place, 0);
    ASSERT_FALSE(masked.empty());
    const int32_t begin = masked.front().position;
    ++first[begin];
    EXPECT_EQ(masked.size(), begin == 1 ? 2U : begin == 3 ? 1U : 3U);
  }
  EXPECT_EQ(first.size(), 3U) << "any unit may be the one";
  EXPECT_TRUE(TokenMasks(options).draw({}, 0, 0).empty());
}

struct Seen {
  std::vector<int64_t> ids, labels;
  bool operator==(const Seen&) const = default;
};

// Returns what each row of the first steps shows and tells, by epoch and the row's second token, which is its
// number.
std::map<std::pair<int64_t, int64_t>, Seen> seen_by(const RowSet& rows, LoaderOptions options, int64_t ranks,
                                                    const Cursor& from) {
  std::map<std::pair<int64_t, int64_t>, Seen> seen;
  options.dp_size = ranks;
  for (options.dp_rank = 0; options.dp_rank < ranks; ++options.dp_rank) {
    Loader loader(rows, options);
    loader.seek(from);
    int64_t labels = 0, told = 0;
    while (loader.cursor().epoch < 2) {
      const Step step = loader.next_step();
      labels += step.label_tokens;
      for (const MicroBatch& batch : step.micro_batches) {
        told += batch.label_tokens;
        EXPECT_EQ(std::ranges::count_if(batch.labels, [](int64_t label) { return label != kIgnoreLabel; }),
                  batch.label_tokens);
        for (size_t d = 0; d + 1 < batch.document_starts.size(); ++d) {
          const int64_t begin = batch.document_starts[d], end = batch.document_starts[d + 1];
          Seen& own = seen[{step.epoch, batch.input_ids[static_cast<size_t>(begin)]}];
          own = {{batch.input_ids.begin() + begin, batch.input_ids.begin() + end},
                 {batch.labels.begin() + begin, batch.labels.begin() + end}};
        }
      }
    }
    EXPECT_TRUE(ranks > 1 || labels == told) << labels << " and " << told;
  }
  return seen;
}

TEST(TokenMasksTest, LayoutsPackingAndResumeChangeNothing) {
  constexpr int64_t kRows = 13;
  const auto store = std::make_shared<RowStore>();
  RowSet rows{
      store, {}, std::make_shared<const TokenMasks>(MaskOptions{.mask_token_id = 90, .vocab_size = 91})};
  for (int32_t number = 0; number < kRows; ++number) {
    Row row{{number}, {static_cast<int32_t>(kIgnoreLabel)}};
    for (int32_t i = 0; i < 3 + number; ++i) {
      row.input_ids.push_back(20 + i);
      row.labels.push_back(20 + i);
    }
    rows.rows.push_back(store->size());
    store->append(row);
  }
  LoaderOptions options;
  options.sequence_len = 40;
  const auto want = seen_by(rows, options, 1, {});
  EXPECT_EQ(want.size(), 2U * kRows);
  int64_t same = 0;
  for (int64_t number = 0; number < kRows; ++number)
    same += want.at({0, number}) == want.at({1, number}) ? 1 : 0;
  EXPECT_LT(same, kRows / 2) << "another epoch has other masks";
  options.micro_batch_size = 2;
  EXPECT_EQ(seen_by(rows, options, 3, {}), want);
  options.packing = true;
  EXPECT_EQ(seen_by(rows, options, 2, {}), want);
  options = {.accumulation = 3};
  for (const auto& [key, seen] : seen_by(rows, options, 2, {1, 6})) EXPECT_EQ(seen, want.at(key));
}

}  // namespace
}  // namespace tessera::data
