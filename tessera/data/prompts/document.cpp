#include "tessera/data/prompts/document.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "tessera/core/error.h"
#include "tessera/data/prompts/encode.h"
#include "tessera/data/prompts/fields.h"

namespace tessera::data {
namespace {

bool holds_text(const PromptRecord& record, const std::string& field) {
  return find_field(record.fields, field) != nullptr || find_field(record.fields, "input_ids") == nullptr;
}

}  // namespace

DocumentPrompt::DocumentPrompt(const config::DatasetConfig& dataset, const PromptContext& context)
    : tokenizer_(*context.tokenizer),
      field_(dataset.field),
      vocab_size_(context.vocab_size > 0 ? context.vocab_size : tokenizer_.vocab_size()) {
  const auto eos = tokenizer_.eos_id();
  if (!eos) {
    throw Error(ErrorKind::Model, "NO-EOS", "the tokenizer has no EOS token to put between documents")
        .at(dataset.source_file, dataset.source_line)
        .got("type: pretrain")
        .hint("special_tokens: {eos_token: ...} selects one of its vocabulary");
  }
  eos_ = *eos;
  begin_ = encode_document(tokenizer_, "", {.bos = true, .eos = false});
  if (begin_.size() == 1 && begin_.front() == eos_) begin_.clear();
}

std::vector<int32_t> DocumentPrompt::own_ids(const PromptRecord& record) const {
  const auto ids = required_integers(record.fields, "input_ids", 0, vocab_size_ - 1);
  return {ids.begin(), ids.end()};
}

void DocumentPrompt::tokenize(const PromptRecord& record, std::vector<Row>& rows) const {
  std::vector<int32_t> ids;
  if (holds_text(record, field_)) {
    std::string_view text = required_text(record.fields, field_);
    if (record.begins_document && record.ends_document) text = without_own_ends(tokenizer_, text);
    ids = encode_document(tokenizer_, text, {.bos = false, .eos = false});
  } else {
    ids = own_ids(record);
    const auto is_end = [&](int32_t id) { return id == eos_ || id == tokenizer_.bos_id(); };
    ids.erase(ids.begin(), std::ranges::find_if_not(ids, is_end));
    while (!ids.empty() && is_end(ids.back())) ids.pop_back();
  }
  if (ids.empty() && record.begins_document) return;
  Row row;
  if (record.begins_document) append_ids(row, begin_, true);
  append_ids(row, ids, true);
  if (record.ends_document) append_ids(row, {eos_}, true);
  if (!row.input_ids.empty()) rows.push_back(std::move(row));
}

bool DocumentPrompt::has_own_ends(const PromptRecord& record) const {
  if (holds_text(record, field_)) return spells_own_ends(tokenizer_, required_text(record.fields, field_));
  const std::vector<int32_t> ids = own_ids(record);
  return !ids.empty() && (ids.front() == tokenizer_.bos_id() || ids.back() == eos_);
}

std::vector<int32_t> DocumentPrompt::end_tokens() const { return {eos_}; }

}  // namespace tessera::data
