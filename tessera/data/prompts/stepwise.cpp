#include "tessera/data/prompts/stepwise.h"

#include <nlohmann/json.hpp>

#include "tessera/core/error.h"
#include "tessera/data/prompts/encode.h"
#include "tessera/data/prompts/fields.h"

namespace tessera::data {

StepwisePrompt::StepwisePrompt(const config::DatasetConfig& dataset, const PromptContext& context)
    : tokenizer_(*context.tokenizer),
      separator_(encode_document(tokenizer_, dataset.step_separator, {.bos = false, .eos = false})) {}

void StepwisePrompt::tokenize(const PromptRecord& record, std::vector<Row>& rows) const {
  const std::string& prompt = required_text(record.fields, "prompt");
  const auto& steps = required_array(record.fields, "completions");
  const auto& labels = required_array(record.fields, "labels");
  if (steps.size() != labels.size()) {
    throw Error(ErrorKind::Data, "FIELD-SIZE", "field 'labels' has another length than 'completions'")
        .got(std::to_string(labels.size()))
        .need(std::to_string(steps.size()));
  }
  Row row;
  if (const auto bos = tokenizer_.bos_id()) append_ids(row, {*bos}, false);
  append_ids(row, encode_document(tokenizer_, prompt, {.bos = false, .eos = false}), false);
  for (size_t i = 0; i < steps.size(); ++i) {
    const bool is_label = labels[i].is_boolean() || labels[i].is_number_integer();
    if (!steps[i].is_string() || !is_label) {
      throw Error(ErrorKind::Data, "FIELD-TYPE", "step " + std::to_string(i) + " is not a text with a label")
          .got(std::string(steps[i].type_name()) + " and " + labels[i].type_name())
          .need("a text, and true, false, 1 or 0");
    }
    append_ids(
        row,
        encode_document(tokenizer_, steps[i].get_ref<const std::string&>(), {.bos = false, .eos = false}),
        false);
    append_ids(row, separator_, false);
    if (!row.labels.empty()) row.labels.back() = row.input_ids.back();
  }
  rows.push_back(std::move(row));
}

std::vector<int32_t> StepwisePrompt::end_tokens() const { return {}; }

}  // namespace tessera::data
