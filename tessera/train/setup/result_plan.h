// Plans the folder that a run leaves.
#pragma once

#include <optional>

#include "tessera/checkpoint/save_folder.h"
#include "tessera/config/recipe.h"
#include "tessera/core/dtype.h"
#include "tessera/text/tokenizer/tokenizer.h"
#include "tessera/train/setup/plan_model.h"

namespace tessera::train {

// Returns the type of the result's weights: that of the recipe's save_dtype, or else that of the base model's
// weights where these are in bfloat16 or float16. Nothing stands for the type in which they are trained: that
// of other bases, of a run in float64, and of adapters.
std::optional<DType> saved_dtype(const ModelSetup& setup, const config::Recipe& recipe);

// Plans the folder that the run leaves: of the model, or of the adapter in PEFT's format when it trained one.
// `base` are the base model's files as they were when the run began; those of the result know the special
// tokens of `tokenizer` if the recipe chose them.
checkpoint::FolderPlan result_folder(const ModelSetup& trained, const config::Recipe& recipe,
                                     const checkpoint::BaseFiles& base,
                                     const std::optional<text::Tokenizer>& tokenizer);

}  // namespace tessera::train
