#include "tessera/data/prompts/instruct.h"

#include <algorithm>
#include <deque>

#include <nlohmann/json.hpp>

#include "tessera/core/error.h"
#include "tessera/data/prompts/fields.h"
#include "tessera/data/prompts/yaml_text.h"

namespace tessera::data {
namespace {

using Json = nlohmann::ordered_json;

const std::string& column_of(const std::string& name, const config::DatasetConfig& dataset) {
  if (name == "instruction") return dataset.field_instruction;
  if (name == "input") return dataset.field_input;
  if (name == "output") return dataset.field_output;
  if (name == "system") return dataset.field_system;
  return name;
}

// Returns a list as lines of - "element".
std::string list_text(const Json& record, const std::string& column) {
  std::string text;
  for (const Json& element : required_array(record, column)) {
    const auto* line = element.get_ptr<const std::string*>();
    if (line == nullptr) {
      throw Error(ErrorKind::Data, "FIELD-TYPE", "an element of '" + column + "' is not a text")
          .got(element.type_name())
          .need("string");
    }
    text += (text.empty() ? "- \"" : "\n- \"") + *line + '"';
  }
  return text;
}

std::string value_of(std::string place, const Json& record, const config::DatasetConfig& dataset) {
  if (const size_t bar = place.find('|'); bar != std::string::npos) {
    const std::string first = place.substr(0, bar);
    return required_text(record, find_field(record, first) != nullptr ? first : place.substr(bar + 1));
  }
  if (place.ends_with('?')) {
    place.pop_back();
    return optional_text(record, column_of(place, dataset));
  }
  if (const size_t colon = place.find(':'); colon != std::string::npos) {
    const std::string column = place.substr(0, colon);
    return place.ends_with(":list") ? list_text(record, column) : yaml_text(required_value(record, column));
  }
  return required_text(record, column_of(place, dataset));
}

std::string own_system(const config::DatasetConfig& dataset) {
  std::string text;
  for (const char c : dataset.system_prompt) text += c == '{' ? "{{" : c == '}' ? "}}" : std::string(1, c);
  return text;
}

}  // namespace

ColumnText::ColumnText(std::string_view text, const config::DatasetConfig& dataset)
    : format_(text, "type", dataset), dataset_(dataset) {}

std::string ColumnText::read(const Json& record) const {
  std::deque<std::string> values;
  return format_.fill([&](std::string_view place) {
    return std::string_view(values.emplace_back(value_of(std::string(place), record, dataset_)));
  });
}

InstructPrompt::InstructPrompt(const FoundInstructType& found, const config::DatasetConfig& dataset,
                               const PromptContext& context)
    : tokenizer_(*context.tokenizer),
      system_format_(found.style->system, "type", dataset),
      turn_(found.style->turn, "type", dataset),
      turn_no_input_(found.style->turn_no_input, "type", dataset),
      instruction_(found.type->instruction, dataset),
      input_(found.type->input, dataset),
      output_(found.type->output, dataset),
      system_(found.type->system, dataset),
      system_no_input_(found.type->system_no_input.empty() ? found.type->system : found.type->system_no_input,
                       dataset),
      num_eos_(found.type->num_eos),
      joined_(found.type->joined),
      train_on_inputs_(context.config.train_on_inputs),
      splits_border_(context.config.answer_border == "split") {}

InstructPrompt::InstructPrompt(const config::DatasetConfig& dataset, const PromptContext& context)
    : tokenizer_(*context.tokenizer),
      system_format_(dataset.system_format, "system_format", dataset),
      turn_(dataset.format, "format", dataset),
      turn_no_input_(dataset.no_input_format, "no_input_format", dataset),
      instruction_("{instruction}", dataset),
      input_("{input?}", dataset),
      output_("{output?}", dataset),
      system_("{system?}", dataset),
      system_no_input_(own_system(dataset), dataset),
      train_on_inputs_(context.config.train_on_inputs) {
  system_format_.check_names({"system"});
  turn_.check_names({"instruction", "input"});
  turn_no_input_.check_names({"instruction"});
  is_own_ = true;
  field_system_ = dataset.field_system;
}

MarkedText InstructPrompt::prompt_text(const Json& record) const {
  const std::string instruction = instruction_.read(record), input = input_.read(record);
  std::string system;
  if (is_own_) {
    system = record.contains(field_system_) ? system_.read(record) : system_no_input_.read(record);
  } else {
    system = input.empty() ? system_no_input_.read(record) : system_.read(record);
  }
  const auto value_of = [&](std::string_view place) -> std::string_view {
    return place == "instruction" ? instruction : place == "input" ? input : system;
  };
  MarkedText text;
  if (!system.empty()) system_format_.fill(value_of, text);
  (input.empty() ? turn_no_input_ : turn_).fill(value_of, text);
  return text;
}

// Makes prompt and answer tokens as one text.
Row InstructPrompt::tokenize_joined(const PromptRecord& record) const {
  const JoinedIds joined =
      encode_joined(tokenizer_, prompt_text(record.fields), output_.read(record.fields), splits_border_);
  if (record.notes != nullptr) record.notes->merges_border = joined.merges && !train_on_inputs_;
  return joined_row(joined, train_on_inputs_);
}

void InstructPrompt::tokenize(const PromptRecord& record, std::vector<Row>& rows) const {
  if (joined_) {
    rows.push_back(tokenize_joined(record));
    return;
  }
  const std::string output = output_.read(record.fields);
  Row row;
  const MarkedText prompt = prompt_text(record.fields);
  append_ids(row, encode_marked(tokenizer_, prompt, {.bos = true, .eos = false}), train_on_inputs_);
  // Type metharme (the one with several EOS tokens) keeps the BOS of an empty prompt.
  if (prompt.text.empty() && num_eos_ > 1)
    append_ids(row, encode_document(tokenizer_, "", {.bos = true, .eos = false}), train_on_inputs_);
  if (!output.empty()) {
    std::vector<int32_t> ids = encode_document(tokenizer_, output, {.bos = false, .eos = true});
    for (int i = 1; i < num_eos_ && tokenizer_.eos_id(); ++i) ids.push_back(*tokenizer_.eos_id());
    append_ids(row, ids, true);
  }
  rows.push_back(std::move(row));
}

std::pair<std::string, std::string> InstructPrompt::texts(const Json& record) const {
  return {prompt_text(record).text, output_.read(record)};
}

std::vector<int32_t> InstructPrompt::end_tokens() const { return eos_tokens(tokenizer_); }

}  // namespace tessera::data
