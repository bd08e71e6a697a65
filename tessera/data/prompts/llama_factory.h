// Reads datasets as LLaMA-Factory describes them.
#pragma once

#include <memory>

#include "tessera/data/prompts/prompt.h"

namespace tessera::data {

// Returns an entry with what a dataset_info.json says of it. With type llama_factory and a `path` that is
// such a file, or a folder with one, `name` picks the dataset, and its columns and tags become keys of the
// entry. Other entries are returned as they are. Throws Error(Config) at the entry for a name that is not
// there, and for what is not supported (hub datasets without a file, images).
config::DatasetConfig resolve_dataset_info(const config::DatasetConfig& dataset, const std::string& folder);

// Type llama_factory: {instruction, input, output, system, history, tools} becomes a conversation in the chat
// template, in which all answers are trained. If the columns name messages, records are conversations with
// function_call and observation turns.
class LlamaFactoryPrompt : public PromptType {
 public:
  LlamaFactoryPrompt(const config::DatasetConfig& dataset, const PromptContext& context);

  void tokenize(const PromptRecord& record, std::vector<Row>& rows) const override;
  std::vector<int32_t> end_tokens() const override { return chat_->end_tokens(); }

 private:
  nlohmann::ordered_json to_messages(const nlohmann::ordered_json& record) const;

  config::DatasetConfig dataset_;
  std::unique_ptr<PromptType> chat_;
};

}  // namespace tessera::data
