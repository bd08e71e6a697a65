// Which chat template a recipe or a dataset entry names.
#pragma once

#include <memory>
#include <string>

#include "tessera/config/recipe.h"
#include "tessera/text/chat_template/chat_template.h"
#include "tessera/text/tokenizer/tokenizer.h"

namespace tessera::data {

// `name`: "" or tokenizer_default (the model's own), tokenizer_default_fallback_<builtin>, jinja (then
// `jinja` is the template or a file with it), or a built-in. A `jinja` text with no name counts as jinja.
// A relative file that is not in the current folder starts at `folder`. Throws Error(Config) for an unknown
// name, Error(Model) where the model has no template or it cannot be parsed.
std::shared_ptr<const text::ChatTemplate> select_chat_template(const std::string& name,
                                                               const std::string& jinja,
                                                               const std::string& folder,
                                                               const text::Tokenizer& tokenizer);

// The recipe's template; nothing where the recipe names none and the model has none.
std::shared_ptr<const text::ChatTemplate> recipe_chat_template(const config::Recipe& recipe,
                                                               const text::Tokenizer& tokenizer);

// The source of the template that a model finetuned by the recipe is to be used with: the one that its chat
// datasets are written in; the recipe's where there are none, or several (then with a warning); else the
// model's own, which may be empty. Throws what select_chat_template() throws.
std::string trained_chat_template(const config::Recipe& recipe, const text::Tokenizer& tokenizer);

}  // namespace tessera::data
