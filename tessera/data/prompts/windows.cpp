#include "tessera/data/prompts/windows.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "tessera/core/error.h"
#include "tessera/data/prompts/encode.h"
#include "tessera/data/prompts/fields.h"

namespace tessera::data {

PretrainPrompt::PretrainPrompt(const config::DatasetConfig& dataset, const PromptContext& context)
    : tokenizer_(*context.tokenizer),
      field_(dataset.field),
      begin_(encode_document(tokenizer_, "", {.bos = true, .eos = false})) {
  const int64_t sequence_len = context.config.sequence_len;
  window_ = sequence_len - 1 - static_cast<int64_t>(begin_.size());
  stride_ = std::min<int64_t>(256, (sequence_len - 1) / 2);
  if (window_ > stride_) return;
  throw Error(ErrorKind::Config, "SEQUENCE-LEN", "windows of type: pretrain cannot be this short")
      .at(dataset.source_file, dataset.source_line)
      .got("sequence_len: " + std::to_string(sequence_len))
      .need("room for the ends and " + std::to_string(stride_ + 1) + " tokens");
}

void PretrainPrompt::tokenize(const PromptRecord& record, std::vector<Row>& rows) const {
  const std::vector<int32_t> ids =
      encode_document(tokenizer_, required_text(record.fields, field_), {.bos = false, .eos = false});
  const auto size = static_cast<int64_t>(ids.size());
  for (int64_t begin = 0;; begin += window_ - stride_) {
    const int64_t end = std::min(begin + window_, size);
    Row row;
    append_ids(row, begin_, true);
    append_ids(row, {ids.begin() + begin, ids.begin() + end}, true);
    append_ids(row, eos_tokens(tokenizer_), true);
    rows.push_back(std::move(row));
    if (end == size) break;
  }
}

bool PretrainPrompt::has_own_ends(const PromptRecord& record) const {
  return spells_own_ends(tokenizer_, required_text(record.fields, field_));
}

std::vector<int32_t> PretrainPrompt::end_tokens() const { return eos_tokens(tokenizer_); }

}  // namespace tessera::data
