#include "tessera/data/prompts/completion.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "tessera/data/prompts/encode.h"
#include "tessera/data/prompts/fields.h"

namespace tessera::data {

CompletionPrompt::CompletionPrompt(const config::DatasetConfig& dataset, const PromptContext& context)
    : tokenizer_(*context.tokenizer), field_(dataset.field), sequence_len_(context.config.sequence_len) {}

void CompletionPrompt::tokenize(const PromptRecord& record, std::vector<Row>& rows) const {
  const std::string& text = required_text(record.fields, field_);
  // A document without text gives an empty row, which is dropped; the last piece of a longer one may be
  // empty.
  if (text.empty() && record.begins_document) {
    rows.emplace_back();
    return;
  }
  const std::vector<int32_t> ids =
      encode_document(tokenizer_, text, {.bos = record.begins_document, .eos = record.ends_document});
  const auto size = static_cast<int64_t>(ids.size());
  for (int64_t begin = 0; begin < size; begin += sequence_len_) {
    const int64_t end = std::min(begin + sequence_len_, size);
    Row row;
    append_ids(row, {ids.begin() + begin, ids.begin() + end}, true);
    rows.push_back(std::move(row));
  }
}

bool CompletionPrompt::has_own_ends(const PromptRecord& record) const {
  return spells_own_ends(tokenizer_, required_text(record.fields, field_));
}

std::vector<int32_t> CompletionPrompt::end_tokens() const { return eos_tokens(tokenizer_); }

}  // namespace tessera::data
