#include "tessera/data/prompts/prompt.h"

#include "tessera/core/error.h"
#include "tessera/core/strings.h"
#include "tessera/data/prompts/alpaca.h"
#include "tessera/data/prompts/chat.h"
#include "tessera/data/prompts/completion.h"
#include "tessera/data/prompts/input_output.h"
#include "tessera/data/prompts/pretokenized.h"

namespace tessera::data {

std::unique_ptr<PromptType> make_prompt_type(const config::DatasetConfig& dataset,
                                             const PromptContext& context) {
  const std::string& type = dataset.type;
  if (context.tokenizer == nullptr && (!type.empty() || dataset.ds_type == "text")) {
    throw Error(ErrorKind::Model, "TOKENIZER", "the model has no tokenizer, and this dataset is text")
        .at(dataset.source_file, dataset.source_line)
        .got(dataset.path)
        .hint("set tokenizer_config to a folder that has one");
  }
  if (type == "alpaca" || type == "alpaca_chat" || type == "alpaca_w_system") {
    return std::make_unique<AlpacaPrompt>(dataset, context);
  }
  if (type == "chat_template" || type == "sharegpt") return std::make_unique<ChatPrompt>(dataset, context);
  if (type == "completion") return std::make_unique<CompletionPrompt>(dataset, context);
  if (type == "input_output") return std::make_unique<InputOutputPrompt>(dataset, context);
  if (type.empty() && dataset.ds_type == "text") return std::make_unique<CompletionPrompt>(dataset, context);
  if (type.empty()) return std::make_unique<PretokenizedPrompt>(dataset, context);
  const std::string near = nearest_name(type, prompt_type_names());
  throw Error(ErrorKind::Config, "DATASET-TYPE", "unknown dataset type '" + type + "'")
      .at(dataset.source_file, dataset.source_line)
      .need(join(prompt_type_names(), ", ") + ", or blank for tokenised rows")
      .hint(near.empty() ? "" : "did you mean '" + near + "'?");
}

std::vector<std::string> prompt_type_names() {
  return {"alpaca",   "alpaca_chat", "alpaca_w_system", "chat_template",
          "sharegpt", "completion",  "input_output"};
}

}  // namespace tessera::data
