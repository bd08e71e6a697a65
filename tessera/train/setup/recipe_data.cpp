#include "tessera/train/setup/recipe_data.h"

#include <algorithm>
#include <iterator>

#include "tessera/config/entry_error.h"
#include "tessera/core/content_hash.h"
#include "tessera/core/error.h"
#include "tessera/core/log.h"
#include "tessera/data/default_chat_template.h"
#include "tessera/data/loader_options.h"
#include "tessera/io/file.h"
#include "tessera/models/common/base_model.h"
#include "tessera/text/tokenizer/template_files.h"
#include "tessera/train/setup/group_exchange.h"

namespace tessera::train {
namespace {

bool is_token_ids(const config::DatasetConfig& dataset) { return dataset.type.empty(); }

const std::string& tokenizer_folder(const config::Recipe& recipe) {
  return recipe.tokenizer_config.empty() ? recipe.base_model : recipe.tokenizer_config;
}

// Returns the file that holds the vocabulary, for errors.
std::string tokenizer_file(const config::Recipe& recipe) {
  const std::string& folder = tokenizer_folder(recipe);
  return models::BaseModel::is_gguf(folder) ? folder : folder + "/tokenizer.json";
}

// Returns a hash of the files that decide how text becomes ids, and of the recipe's special tokens.
std::string tokenizer_fingerprint(const config::Recipe& recipe) {
  constexpr int64_t kMaxBytes = int64_t{1} << 30;
  const std::string& folder = tokenizer_folder(recipe);
  ContentHash hash;
  // Other files than tokenizer.json, and metadata, are told by what a result would hold.
  const bool has_document = io::exists(io::join_path(folder, "tokenizer.json"));
  if (!has_document && models::BaseModel::has_tokenizer(folder)) {
    for (const auto& [name, text] : models::BaseModel::tokenizer(folder).saved_files()) {
      hash.add(name);
      hash.add(text);
    }
  }
  std::vector<std::string> names = {"tokenizer.json",          "tokenizer_config.json",
                                    "special_tokens_map.json", "generation_config.json",
                                    "chat_template.jinja",     "config.json"};
  std::ranges::copy(text::named_template_files(folder), std::back_inserter(names));
  for (const std::string& name : names) {
    const std::string path = io::join_path(folder, name);
    hash.add(name);
    if (io::exists(path)) hash.add(io::read_file(path, kMaxBytes));
  }
  for (const auto& [role, token] : recipe.special_tokens) hash.add(role + ' ' + token);
  return std::to_string(hash.value());
}

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
  return options;
}

data::PreparedData read_rows(const config::Recipe& recipe, const std::optional<text::Tokenizer>& tokenizer,
                             const data::PrepareOptions& options) {
  if (!tokenizer) return data::prepare_token_ids(recipe, options);
  const auto chat_template = data::default_chat_template(recipe, *tokenizer);
  return data::prepare_data(recipe, *tokenizer, chat_template.get(), options);
}

void set_special_token(const config::Recipe& recipe, text::Tokenizer& tokenizer, const std::string& role,
                       const std::string& token) {
  if (tokenizer.token_to_id(token)) return tokenizer.set_special_token(role, token);
  throw config::key_error(recipe, "SPECIAL-TOKEN", "special_tokens." + role,
                          "no token of the model's vocabulary")
      .got("'" + token + "'")
      .need("a token of " + tokenizer_file(recipe))
      .hint("adding tokens to the vocabulary is not supported yet");
}

// Checks that all of the recipe's `tokens` are added tokens of the vocabulary, which are found whole in any
// text: there is nothing to do for such tokens.
void check_tokens(const config::Recipe& recipe, const text::Tokenizer& tokenizer) {
  for (const std::string& token : recipe.tokens) {
    const auto id = tokenizer.token_to_id(token);
    if (id && tokenizer.is_added(*id)) continue;
    const char* what = id ? "an ordinary token of the vocabulary cannot become a control token"
                          : "adding tokens to the vocabulary is not supported yet";
    throw config::key_error(recipe, "UNSUPPORTED", "tokens", what)
        .got("'" + token + "'")
        .need("one of the added tokens of " + tokenizer_file(recipe))
        .hint("add it to the tokenizer and to the model's embeddings first, or leave it out");
  }
}

// Refuses resize_token_embeddings_to_32x where Axolotl would add rows to the model: where it has fewer than
// the vocabulary, rounded up to a multiple of 32.
void check_embeddings(const config::Recipe& recipe, const text::Tokenizer& tokenizer) {
  if (!recipe.resize_token_embeddings_to_32x) return;
  const int64_t need = (tokenizer.vocab_size() + 31) / 32 * 32;
  const int64_t got = models::BaseModel::open(recipe.base_model).config().vocab_size;
  if (got >= need) return;
  throw config::key_error(recipe, "UNSUPPORTED", "resize_token_embeddings_to_32x",
                          "adding rows to the embeddings is not supported yet")
      .got("a model with " + std::to_string(got) + " rows")
      .need(std::to_string(need))
      .hint("leave it out: rows beyond the vocabulary belong to no token");
}

}  // namespace

std::optional<text::Tokenizer> load_recipe_tokenizer(const config::Recipe& recipe,
                                                     config::Problems& problems) {
  const std::string& folder = tokenizer_folder(recipe);
  if (std::ranges::all_of(recipe.datasets, is_token_ids) &&
      std::ranges::all_of(recipe.test_datasets, is_token_ids) && recipe.special_tokens.empty() &&
      recipe.tokens.empty() && recipe.tokenizer_config.empty() && !models::BaseModel::has_tokenizer(folder)) {
    log::warn(folder + " has no tokenizer: training on token ids, and no tokenizer is saved");
    return std::nullopt;
  }
  text::Tokenizer tokenizer = models::BaseModel::tokenizer(folder);
  const auto attempt = [&](const std::string& key, auto&& work) {
    problems.attempt(key.substr(0, key.find('.')), recipe.place_of({key}), work);
  };
  for (const auto& [role, token] : recipe.special_tokens)
    attempt("special_tokens." + role, [&] { set_special_token(recipe, tokenizer, role, token); });
  attempt("tokens", [&] { check_tokens(recipe, tokenizer); });
  attempt("resize_token_embeddings_to_32x", [&] { check_embeddings(recipe, tokenizer); });
  return tokenizer;
}

data::PreparedData read_recipe_data(const config::Recipe& recipe, const models::ModelConfig& model,
                                    std::optional<text::Tokenizer>& tokenizer, int64_t num_threads,
                                    std::optional<int64_t> now) {
  data::PrepareOptions options = prepare_options(recipe, model, num_threads, now);
  if (!recipe.dataset_prepared_path.empty()) options.tokenizer_fingerprint = tokenizer_fingerprint(recipe);
  if (tokenizer) data::warn_of_missing_tokens(recipe, *tokenizer);
  data::PreparedData rows = read_rows(recipe, tokenizer, options);
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
