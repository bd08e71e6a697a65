// Makes the tokenised rows of a recipe.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "tessera/comm/communicator.h"
#include "tessera/config/recipe.h"
#include "tessera/data/prepare.h"
#include "tessera/data/stream/stream_loader.h"
#include "tessera/models/common/model_config.h"
#include "tessera/text/tokenizer/tokenizer.h"

namespace tessera::train {

// Tokenises every dataset on `num_threads` threads (0 = one a core), then gives the tokenizer, which comes
// from load_recipe_tokenizer(), the chat template that is trained with. `model` is the config of the recipe's
// base_model; `now` is PrepareOptions::now. Not collective. Throws what default_chat_template() and
// prepare_data() throw.
data::PreparedData read_recipe_data(const config::Recipe& recipe, const models::ModelConfig& model,
                                    std::optional<text::Tokenizer>& tokenizer, int64_t num_threads = 0,
                                    std::optional<int64_t> now = std::nullopt);

// Opens the stream of training rows of a recipe that streams, for rank `dp_rank` of `dp_size`. Tokenises on
// `num_threads` threads; `model`, `tokenizer` and `now` are as for read_recipe_data(), which comes first.
// Recipe and tokenizer outlive the stream. The ranks of `group` make the rows together, each a share of them,
// for steps of any rank; without a group this rank makes all rows. Opening is not collective, but the steps
// are over `group`, which nothing else may use.
std::unique_ptr<data::StreamLoader> open_recipe_stream(const config::Recipe& recipe,
                                                       const models::ModelConfig& model,
                                                       const std::optional<text::Tokenizer>& tokenizer,
                                                       int64_t dp_rank, int64_t dp_size, int64_t num_threads,
                                                       std::optional<int64_t> now,
                                                       std::shared_ptr<comm::Communicator> group = nullptr);

}  // namespace tessera::train
