#include "tessera/train/setup/recipe_data.h"

#include <algorithm>

#include "tessera/core/error.h"
#include "tessera/core/log.h"
#include "tessera/data/default_chat_template.h"
#include "tessera/data/loader_options.h"
#include "tessera/data/token_masks.h"
#include "tessera/train/setup/group_exchange.h"
#include "tessera/train/setup/recipe_tokenizer.h"

namespace tessera::train {
namespace {

// Warns of rows beyond the positions that the model was made for: they are legitimate where the model is to
// learn these positions, and a mistake elsewhere.
void warn_of_long_rows(const data::PreparedData& data, const models::ModelConfig& model) {
  int64_t count = 0, longest = 0;
  for (const data::RowSet* rows : {&data.train, &data.eval}) {
    for (int64_t i = 0; i < rows->size(); ++i) {
      longest = std::max(longest, rows->length(i));
      count += rows->length(i) > model.max_position_embeddings ? 1 : 0;
    }
  }
  if (count == 0) return;
  log::warn(std::to_string(count) + " rows of up to " + std::to_string(longest) +
            " tokens are longer than the model's max_position_embeddings (" +
            std::to_string(model.max_position_embeddings) +
            "); lower sequence_len, or give the model a longer rope_scaling");
}

data::PrepareOptions prepare_options(const config::Recipe& recipe, const models::ModelConfig& model,
                                     int64_t num_threads, std::optional<int64_t> now) {
  data::PrepareOptions options;
  options.vocab_size = model.vocab_size;
  options.num_threads = num_threads;
  options.now = now;
  options.seed = static_cast<uint64_t>(recipe.seed);
  if (model.classification)
    options.classification = data::ClassificationRows{
        .classes = *model.classification,
        .reads_first = model.is_encoder,
        .labels_all_tokens = recipe.label_all_tokens,
        .of_pairs = recipe.task == config::Task::RewardModel,
        .pad_token_id = model.pad_token_id,
        .most_tokens = model.document_bound ? std::optional(model.document_bound->tokens) : std::nullopt};
  if (model.is_masked_lm) {
    options.masked = {recipe.whole_word_mask,
                      model.document_bound ? std::optional(model.document_bound->tokens) : std::nullopt};
  }
  if (model.is_encoder_decoder)
    options.seq2seq = data::Seq2SeqRows{static_cast<int32_t>(model.decoder_start_token_id)};
  return options;
}

std::shared_ptr<const data::TokenMasks> make_masks(const config::Recipe& recipe,
                                                   const models::ModelConfig& model,
                                                   const text::Tokenizer& tokenizer, const char* stream) {
  data::MaskOptions options;
  options.probability = recipe.mlm_probability;
  options.mask_share = recipe.mask_replace_prob;
  options.random_share = recipe.random_replace_prob;
  options.mask_token_id = *tokenizer.mask_id();
  options.vocab_size = std::min(model.vocab_size, tokenizer.vocab_size());
  options.whole_runs = recipe.whole_word_mask;
  options.seed = static_cast<uint64_t>(recipe.seed);
  options.stream = stream;
  return std::make_shared<const data::TokenMasks>(options);
}

void check_mask_token(const models::ModelConfig& model, const std::optional<text::Tokenizer>& tokenizer) {
  const auto mask = tokenizer ? tokenizer->mask_id() : std::nullopt;
  if (mask && *mask < model.vocab_size) return;
  throw Error(ErrorKind::Model, "MASK-TOKEN", "task: masked_lm needs a tokenizer with a mask token")
      .got(mask        ? "a mask token outside of the model's vocabulary"
           : tokenizer ? "a tokenizer without one"
                       : "no tokenizer")
      .need("a mask_token in tokenizer_config.json")
      .hint("tokenizer_config names another folder with the tokenizer");
}

data::PreparedData read_rows(const config::Recipe& recipe, const std::optional<text::Tokenizer>& tokenizer,
                             const data::PrepareOptions& options) {
  if (!tokenizer) return data::prepare_token_ids(recipe, options);
  const auto chat_template = data::default_chat_template(recipe, *tokenizer);
  return data::prepare_data(recipe, *tokenizer, chat_template.get(), options);
}

}  // namespace

data::PreparedData read_recipe_data(const config::Recipe& recipe, const models::ModelConfig& model,
                                    std::optional<text::Tokenizer>& tokenizer, int64_t num_threads,
                                    std::optional<int64_t> now) {
  if (model.is_masked_lm) check_mask_token(model, tokenizer);
  data::PrepareOptions options = prepare_options(recipe, model, num_threads, now);
  if (!recipe.dataset_prepared_path.empty()) options.tokenizer_fingerprint = tokenizer_fingerprint(recipe);
  if (tokenizer) data::warn_of_missing_tokens(recipe, *tokenizer);
  data::PreparedData rows = read_rows(recipe, tokenizer, options);
  if (model.is_masked_lm) {
    rows.train.masks = make_masks(recipe, model, *tokenizer, "data.masks");
    rows.eval.masks = make_masks(recipe, model, *tokenizer, "data.masks.eval");
  }
  warn_of_long_rows(rows, model);
  if (tokenizer) tokenizer->set_chat_template(data::trained_chat_template(recipe, *tokenizer));
  return rows;
}

std::unique_ptr<data::StreamLoader> open_recipe_stream(const config::Recipe& recipe,
                                                       const models::ModelConfig& model,
                                                       const std::optional<text::Tokenizer>& tokenizer,
                                                       int64_t dp_rank, int64_t dp_size, int64_t num_threads,
                                                       std::optional<int64_t> now,
                                                       std::shared_ptr<comm::Communicator> group) {
  if (recipe.sequence_len > model.max_position_embeddings) {
    log::warn("sequence_len " + std::to_string(recipe.sequence_len) +
              " is above the model's max_position_embeddings (" +
              std::to_string(model.max_position_embeddings) +
              "); lower it, or give the model a longer rope_scaling");
  }
  data::PrepareOptions options = prepare_options(recipe, model, num_threads, now);
  options.tokenizer_fingerprint = tokenizer_fingerprint(recipe);
  return std::make_unique<data::StreamLoader>(
      recipe, tokenizer ? &*tokenizer : nullptr,
      tokenizer ? data::default_chat_template(recipe, *tokenizer) : nullptr, options,
      data::train_loader_options(recipe, dp_rank, dp_size),
      group ? std::make_shared<GroupExchange>(std::move(group)) : nullptr);
}

}  // namespace tessera::train
