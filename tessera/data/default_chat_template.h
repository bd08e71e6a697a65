// Which chat template the data of a recipe are written in.
#pragma once

#include <memory>
#include <string>

#include "tessera/config/data_config.h"
#include "tessera/text/chat_template/chat_template.h"
#include "tessera/text/tokenizer/tokenizer.h"

namespace tessera::data {

// The template of `config`; nothing where it names none and the model has none.
std::shared_ptr<const text::ChatTemplate> default_chat_template(const config::DataConfig& config,
                                                                const text::Tokenizer& tokenizer);

// The source of the template that a model finetuned by the recipe is to be used with: the one that its chat
// datasets are written in; the recipe's where there are none, or several (then with a warning); else the
// model's own, which may be empty. Throws what select_chat_template() throws.
std::string trained_chat_template(const config::DataConfig& config, const text::Tokenizer& tokenizer);

// One warning for each built-in template that the recipe names and whose control tokens ("<|eot_id|>") the
// vocabulary lacks: they would be cut into several ordinary tokens.
void warn_of_missing_tokens(const config::DataConfig& config, const text::Tokenizer& tokenizer);

}  // namespace tessera::data
