// Finds the chat template that the data of a recipe are written in.
#pragma once

#include <memory>
#include <string>

#include "tessera/config/data_config.h"
#include "tessera/text/chat_template/chat_template.h"
#include "tessera/text/tokenizer/tokenizer.h"

namespace tessera::data {

// Returns the template that `config` names, or else the model's own; null if there is neither. Throws what
// select_chat_template() throws.
std::shared_ptr<const text::ChatTemplate> default_chat_template(const config::DataConfig& config,
                                                                const text::Tokenizer& tokenizer);

// Returns the source of the template with which a model finetuned by the recipe is to be used. It is the one
// that the chat datasets are written in. If there are none, or they are written in several (then with a
// warning), it is the recipe's, or else the model's own, which may be empty. Throws what
// select_chat_template() throws.
std::string trained_chat_template(const config::DataConfig& config, const text::Tokenizer& tokenizer);

// Warns once for each built-in template that the recipe names and whose control tokens ("<|eot_id|>") the
// vocabulary lacks: they would be cut into several ordinary tokens.
void warn_of_missing_tokens(const config::DataConfig& config, const text::Tokenizer& tokenizer);

}  // namespace tessera::data
