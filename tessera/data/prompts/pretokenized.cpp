#include "tessera/data/prompts/pretokenized.h"

#include <nlohmann/json.hpp>

#include "tessera/core/error.h"
#include "tessera/data/prompts/encode.h"
#include "tessera/data/prompts/fields.h"

namespace tessera::data {
namespace {

void require_size(const std::vector<int64_t>& values, size_t size, const char* field) {
  if (values.size() == size) return;
  throw Error(ErrorKind::Data, "FIELD-SIZE",
              std::string("field '") + field + "' has another length than 'input_ids'")
      .got(std::to_string(values.size()))
      .need(std::to_string(size));
}

}  // namespace

PretokenizedPrompt::PretokenizedPrompt(const config::DatasetConfig& dataset, const PromptContext& context)
    : tokenizer_(context.tokenizer),
      vocab_size_(context.vocab_size > 0 ? context.vocab_size : context.tokenizer->vocab_size()) {}

void PretokenizedPrompt::tokenize(const PromptRecord& record, std::vector<Row>& rows) const {
  const std::vector<int64_t> ids = required_integers(record.fields, "input_ids", 0, vocab_size_ - 1);
  const std::vector<int64_t> labels =
      required_integers(record.fields, "labels", 0, vocab_size_ - 1, kIgnoreLabel);
  require_size(labels, ids.size(), "labels");
  std::vector<int64_t> mask(ids.size(), 1);
  if (find_field(record.fields, "attention_mask") != nullptr)
    mask = required_integers(record.fields, "attention_mask", 0, 1);
  require_size(mask, ids.size(), "attention_mask");

  Row row;
  for (size_t i = 0; i < ids.size(); ++i) {
    if (mask[i] == 0) continue;
    if (labels[i] != kIgnoreLabel && labels[i] != ids[i]) {
      throw Error(ErrorKind::Data, "LABEL",
                  "field 'labels' at " + std::to_string(i) + " is another token than 'input_ids'")
          .got(std::to_string(labels[i]))
          .need(std::to_string(ids[i]) + " or -100")
          .hint("labels are not shifted");
    }
    row.input_ids.push_back(static_cast<int32_t>(ids[i]));
    row.labels.push_back(static_cast<int32_t>(labels[i]));
  }
  rows.push_back(std::move(row));
}

std::vector<int32_t> PretokenizedPrompt::end_tokens() const {
  return tokenizer_ == nullptr ? std::vector<int32_t>{} : eos_tokens(*tokenizer_);
}

}  // namespace tessera::data
