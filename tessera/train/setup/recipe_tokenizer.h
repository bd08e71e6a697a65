// The tokenizer of a recipe with the tokens that it adds, and the model whose vocabulary has room for them.
#pragma once

#include <optional>
#include <string>

#include "tessera/config/problems.h"
#include "tessera/config/recipe.h"
#include "tessera/models/common/base_model.h"
#include "tessera/text/tokenizer/tokenizer.h"

namespace tessera::train {

// Returns the tokenizer with the recipe's special tokens and new tokens; nothing where the model has no
// tokenizer and every dataset is token ids. Not collective. Throws what Tokenizer::from_folder() throws; what
// is wrong with the recipe itself is added to `problems`.
std::optional<text::Tokenizer> load_recipe_tokenizer(const config::Recipe& recipe,
                                                     config::Problems& problems);

// Returns a hash of the files that decide how text becomes ids, and of the tokens that the recipe adds.
std::string tokenizer_fingerprint(const config::Recipe& recipe);

// Opens base_model. Its tables of tokens get as many rows as the tokenizer needs, rounded up to a multiple of
// 32 with resize_token_embeddings_to_32x, and lose those that it does not need with shrink_embeddings; they
// have the rows that an adapter of lora_model_dir brings. Says so in the log. Not collective. Throws what
// BaseModel::open() throws.
models::BaseModel open_recipe_base(const config::Recipe& recipe,
                                   const std::optional<text::Tokenizer>& tokenizer);
// Does the same where no tokenizer is at hand: it is loaded if the recipe's keys can change the vocabulary.
models::BaseModel open_recipe_base(const config::Recipe& recipe);

}  // namespace tessera::train
