#include "tessera/data/prompts/input_output.h"

#include <nlohmann/json.hpp>

#include "tessera/core/error.h"
#include "tessera/data/prompts/encode.h"
#include "tessera/data/prompts/fields.h"

namespace tessera::data {

InputOutputPrompt::InputOutputPrompt(const config::DatasetConfig& dataset, const PromptContext& context)
    : tokenizer_(*context.tokenizer), train_on_inputs_(context.config.train_on_inputs) {}

void InputOutputPrompt::tokenize(const PromptRecord& record, std::vector<Row>& rows) const {
  Row row;
  for (const auto& segment : required_array(record.fields, "segments")) {
    if (!segment.is_object()) {
      throw Error(ErrorKind::Data, "FIELD-TYPE", "an element of 'segments' is not an object")
          .got(segment.type_name())
          .need("{label, text}");
    }
    const auto* label = find_field(segment, "label");
    if (label == nullptr || !label->is_boolean()) {
      throw Error(ErrorKind::Data, "FIELD-TYPE", "a segment's 'label' is not a boolean")
          .got(label == nullptr ? "nothing" : label->type_name())
          .need("true or false");
    }
    append_ids(row, tokenizer_.encode(required_text(segment, "text"), {.parse_special = true}),
               label->get<bool>() || train_on_inputs_);
  }
  rows.push_back(std::move(row));
}

std::vector<int32_t> InputOutputPrompt::end_tokens() const { return eos_tokens(tokenizer_); }

}  // namespace tessera::data
