#include "tessera/data/prompts/masked_lm.h"

#include <algorithm>

#include "tessera/core/error.h"
#include "tessera/data/prompts/fields.h"

namespace tessera::data {
namespace {

// Tells whether token i begins a word: it does not follow the token before at once, or white space stands in
// its own text.
bool begins_word(const text::PairEncoding& encoded, size_t i, std::string_view text) {
  const auto begin = static_cast<size_t>(encoded.spans[i].begin);
  if (i == 0 || encoded.texts[i - 1] < 0 || encoded.spans[i].begin != encoded.spans[i - 1].end) return true;
  constexpr std::string_view kWhiteSpace = " \t\n\r";
  return begin < text.size() && kWhiteSpace.find(text[begin]) != std::string_view::npos;
}

}  // namespace

MaskedLmPrompt::MaskedLmPrompt(const config::DatasetConfig& dataset, const PromptContext& context)
    : tokenizer_(*context.tokenizer),
      field_(dataset.field),
      rows_(*context.masked),
      most_tokens_(
          std::min(context.config.sequence_len, rows_.most_tokens.value_or(context.config.sequence_len))) {}

void MaskedLmPrompt::tokenize(const PromptRecord& record, std::vector<Row>& rows) const {
  const std::string& text = required_text(record.fields, field_);
  const text::PairEncoding encoded =
      tokenizer_.encode_pair(text, std::nullopt, {.parse_special = false, .add_special_tokens = true});
  const auto is_text = [](int32_t number) { return number >= 0; };
  const auto size = std::ssize(encoded.ids);
  const int64_t first = std::ranges::find_if(encoded.texts, is_text) - encoded.texts.begin();
  const int64_t count = std::ranges::count_if(encoded.texts, is_text), end = first + count;
  if (count == 0) {
    rows.emplace_back();
    return;
  }
  const int64_t room = most_tokens_ - (size - count);
  if (room < 1) {
    throw Error(ErrorKind::Config, "SEQUENCE-LEN", "a row has no room for a text")
        .got("rows of " + std::to_string(most_tokens_) + " tokens, " + std::to_string(size - count) +
             " of them special")
        .need("a sequence_len of at least " + std::to_string(size - count + 1));
  }
  for (int64_t begin = first; begin < end; begin += room) {
    Row row;
    const auto add = [&](int64_t from, int64_t to, bool is_labelled) {
      for (int64_t i = from; i < to; ++i) {
        const int32_t id = encoded.ids[static_cast<size_t>(i)];
        if (is_labelled && rows_.whole_words && begins_word(encoded, static_cast<size_t>(i), text))
          row.run_starts.push_back(static_cast<int32_t>(row.input_ids.size()));
        row.input_ids.push_back(id);
        row.labels.push_back(is_labelled ? id : static_cast<int32_t>(kIgnoreLabel));
      }
    };
    add(0, first, false);
    add(begin, std::min(begin + room, end), true);
    add(end, size, false);
    rows.push_back(std::move(row));
  }
}

}  // namespace tessera::data
