#include "tessera/data/prompts/alpaca.h"

#include <nlohmann/json.hpp>

#include "tessera/data/prompts/encode.h"
#include "tessera/data/prompts/fields.h"

namespace tessera::data {
namespace {

constexpr const char* kSystemWithInput =
    "Below is an instruction that describes a task, paired with an input that provides further context. "
    "Write a response that appropriately completes the request.";
constexpr const char* kSystemWithoutInput =
    "Below is an instruction that describes a task. Write a response that appropriately completes the "
    "request.";

}  // namespace

AlpacaPrompt::AlpacaPrompt(const config::DatasetConfig& dataset, const PromptContext& context)
    : dataset_(dataset), tokenizer_(*context.tokenizer), train_on_inputs_(context.config.train_on_inputs) {}

std::string AlpacaPrompt::prompt_text(const nlohmann::ordered_json& record) const {
  const std::string& instruction = required_text(record, dataset_.field_instruction);
  const std::string input = optional_text(record, dataset_.field_input);
  const std::string system = input.empty() ? kSystemWithoutInput : kSystemWithInput;
  if (dataset_.type == "alpaca_chat") {
    return "SYSTEM: " + system + "\nUSER: " + instruction + "\n" + (input.empty() ? "" : input + "\n") +
           "ASSISTANT:";
  }
  std::string text = system + "\n\n";
  if (dataset_.type == "alpaca_w_system") {
    const std::string own = optional_text(record, dataset_.field_system);
    text = own.empty() ? "" : "### System:\n" + own + "\n\n";
  }
  text += "### Instruction:\n" + instruction + "\n\n";
  if (!input.empty()) text += "### Input:\n" + input + "\n\n";
  return text + "### Response:\n";
}

void AlpacaPrompt::tokenize(const PromptRecord& record, std::vector<Row>& rows) const {
  const std::string& output = required_text(record.fields, dataset_.field_output);
  Row row;
  append_ids(row, encode_document(tokenizer_, prompt_text(record.fields), {.bos = true, .eos = false}),
             train_on_inputs_);
  append_ids(row, encode_document(tokenizer_, output, {.bos = false, .eos = true}), true);
  rows.push_back(std::move(row));
}

std::vector<int32_t> AlpacaPrompt::end_tokens() const { return eos_tokens(tokenizer_); }

}  // namespace tessera::data
