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
        .hint("special_tokens: {eos_token: ...} names one of its vocabulary");
  }
  eos_ = *eos;
  begin_ = encode_document(tokenizer_, "", {.bos = true, .eos = false});
  if (begin_.size() == 1 && begin_.front() == eos_) begin_.clear();
}

std::vector<int32_t> DocumentPrompt::own_ids(const PromptRecord& record) const {
  std::vector<int32_t> ids;
  for (const auto& value : required_array(record.fields, "input_ids")) {
    const int64_t id = value.is_number_integer() ? value.get<int64_t>() : -1;
    if (id < 0 || id >= vocab_size_) {
      throw Error(ErrorKind::Data, "TOKEN-ID",
                  "field 'input_ids' at " + std::to_string(ids.size()) + " is out of range")
          .got(value.dump().substr(0, 40))
          .need("an integer from 0 to " + std::to_string(vocab_size_ - 1));
    }
    ids.push_back(static_cast<int32_t>(id));
  }
  return ids;
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
  if (holds_text(record, field_)) {
    const std::string& text = required_text(record.fields, field_);
    return without_own_ends(tokenizer_, text).size() < text.size();
  }
  const std::vector<int32_t> ids = own_ids(record);
  return !ids.empty() && (ids.front() == tokenizer_.bos_id() || ids.back() == eos_);
}

std::vector<int32_t> DocumentPrompt::end_tokens() const { return {eos_}; }

}  // namespace tessera::data
