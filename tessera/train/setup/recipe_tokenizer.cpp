#include "tessera/train/setup/recipe_tokenizer.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <vector>

#include "tessera/config/entry_error.h"
#include "tessera/config/scalar.h"
#include "tessera/core/content_hash.h"
#include "tessera/core/error.h"
#include "tessera/core/log.h"
#include "tessera/core/round_up.h"
#include "tessera/core/strings.h"
#include "tessera/core/utf8.h"
#include "tessera/data/prompts/classification.h"
#include "tessera/io/file.h"
#include "tessera/models/common/assembly.h"
#include "tessera/text/tokenizer/template_files.h"

namespace tessera::train {
namespace {

bool is_token_ids(const config::DatasetConfig& dataset) { return dataset.type.empty(); }

const std::string& tokenizer_folder(const config::Recipe& recipe) {
  return recipe.tokenizer_config.empty() ? recipe.base_model : recipe.tokenizer_config;
}

void check_token(const config::KeyPlaces& places, const std::string& key, const std::string& token) {
  if (!token.empty() && find_invalid_utf8(token) < 0) return;
  throw config::key_error(places, "NEW-TOKEN", key, "a token is empty or not valid UTF-8")
      .got("'" + token + "'")
      .need("text");
}

// Gives tokens the names that the recipe has for their ids.
void rename_tokens(const config::VocabularyConfig& keys, const config::KeyPlaces& places,
                   text::Tokenizer& tokenizer, config::Problems& problems) {
  constexpr const char* kKey = "added_tokens_overrides";
  std::map<int32_t, std::string> names;
  for (const auto& [id, name] : keys.added_tokens_overrides) {
    const std::string key = kKey + ("." + id);
    problems.attempt(kKey, places.place_of({key}), [&] {
      check_token(places, key, name);
      const config::ParsedInteger number = config::parse_integer(id);
      if (number.status != config::IntegerStatus::Ok || number.value < 0 || number.value > INT32_MAX) {
        throw config::key_error(places, "NEW-TOKEN", key, "the key is not the id of a token")
            .got("'" + id + "'")
            .need("a whole number, such as 128041");
      }
      names[static_cast<int32_t>(number.value)] = name;
    });
  }
  if (names.empty()) return;
  problems.attempt(kKey, places.place_of({kKey}), [&] { tokenizer = tokenizer.with_renamed_tokens(names); });
  for (const auto& [id, name] : names) {
    log::info("token " + std::to_string(id) + " is called '" + name + "'");
  }
}

// Adds the tokens in Axolotl's order: those of roles, further special ones, then ordinary ones.
void add_tokens(const config::VocabularyConfig& keys, const config::KeyPlaces& places,
                text::Tokenizer& tokenizer, config::Problems& problems) {
  const auto attempt = [&](const std::string& key, const std::vector<text::NewToken>& tokens) {
    problems.attempt(key.substr(0, key.find('.')), places.place_of({key}), [&] {
      for (const text::NewToken& token : tokens) check_token(places, key, token.content);
      tokenizer.add_tokens(tokens);
    });
  };
  const int64_t before = tokenizer.vocab_size();
  for (const auto& [role, token] : keys.special_tokens) {
    if (!tokenizer.token_to_id(token))
      attempt("special_tokens." + role, {{.content = token, .is_special = true}});
    if (tokenizer.token_to_id(token)) tokenizer.set_special_token(role, token);
  }
  std::vector<text::NewToken> special, ordinary;
  for (const std::string& token : keys.additional_special_tokens)
    special.push_back({.content = token, .is_special = true, .is_listed = true});
  for (const std::string& token : keys.tokens) ordinary.push_back({.content = token});
  attempt("additional_special_tokens", special);
  attempt("tokens", ordinary);
  if (tokenizer.vocab_size() > before)
    log::info("new tokens have the ids " + std::to_string(before) + " to " +
              std::to_string(tokenizer.vocab_size() - 1));
}

// Tells whether keys other than those of new tokens can change the number of rows.
bool has_row_keys(const config::Recipe& recipe) {
  return !recipe.tokenizer_config.empty() || recipe.resize_token_embeddings_to_32x ||
         recipe.shrink_embeddings;
}

// Warns of new tokens whose embeddings the adapter leaves as they were drawn: ids from `first` to `end`.
void warn_of_untrained_tokens(const config::Recipe& recipe, int64_t first, int64_t end) {
  const auto is_saved = [&](const std::string& module) {
    return module.ends_with("embed_tokens") || module.ends_with("wte");
  };
  if (std::ranges::any_of(recipe.lora_modules_to_save, is_saved)) return;
  int64_t count = 0;
  for (int64_t id = first; id < end; ++id)
    count += std::ranges::count(recipe.peft_trainable_token_indices, id) > 0 ? 0 : 1;
  if (count == 0) return;
  log::warn(
      std::to_string(count) +
      " new tokens keep random embeddings, since the adapter trains no embedding: name embed_tokens and "
      "lm_head in lora_modules_to_save, or, where the model ties them, ids from " +
      std::to_string(first) + " to " + std::to_string(end - 1) + " in peft_trainable_token_indices");
}

// Returns the model with the recipe's model_config. Throws Error(Config) that says what is wrong with a
// value.
models::BaseModel with_recipe_config(const models::BaseModel& base, const config::Recipe& recipe) {
  try {
    return base.with_config(recipe.model_config);
  } catch (const Error& error) {
    throw config::key_error(recipe, "MODEL-CONFIG", "model_config",
                            std::string("config.json with these values is refused: ") + error.what());
  }
}

// Returns the classes that the recipe asks for: those that it names, else those of the adapter that it
// continues, else those of the model, else those that the labels of its data show.
Classification wanted_classes(const models::ModelConfig& model, const config::Recipe& recipe,
                              const std::optional<Classification>& continued) {
  const bool of_tokens = recipe.task == config::Task::TokenClassification;
  const auto problem = of_tokens ? ProblemType::Tokens : find_problem_type(recipe.problem_type);
  // Labels of texts say nothing about those of tokens.
  auto own = model.classification;
  if (own && own->of_tokens() != of_tokens) own.reset();
  if (recipe.task == config::Task::RewardModel) {
    if (own && own->num_labels() == 1 && recipe.label_names.empty()) return *own;
    return {ProblemType::Regression, recipe.label_names.empty() ? default_labels(1) : recipe.label_names};
  }
  if (recipe.label_names.empty() && recipe.num_labels == 0) {
    if (continued) return *continued;
    if (own && problem.value_or(own->problem) == own->problem) return *own;
    const Classification found = data::find_classes(recipe, problem);
    log::info("classes of the data: " + std::to_string(found.num_labels()) + " (" +
              problem_type_name(found.problem) + ")");
    return found;
  }
  Classification classes;
  classes.labels = recipe.label_names.empty() ? default_labels(recipe.num_labels) : recipe.label_names;
  if (recipe.label_names.empty() && own && own->num_labels() == recipe.num_labels)
    classes.labels = own->labels;
  classes.problem = problem.value_or(own                         ? own->problem
                                     : classes.num_labels() == 1 ? ProblemType::Regression
                                                                 : ProblemType::SingleLabel);
  return classes;
}

// Refuses a task of another kind than the base model is made for.
void check_seq2seq(const models::ModelConfig& model, const config::Recipe& recipe) {
  if (model.is_encoder_decoder == (recipe.task == config::Task::Seq2Seq)) return;
  const char* const need = model.is_encoder_decoder ? "task: seq2seq" : "an encoder-decoder, such as T5";
  throw recipe
      .error("TASK",
             model.is_encoder_decoder ? "the base model is an encoder-decoder"
                                      : "task: seq2seq trains encoder-decoders",
             {"task", "base_model"})
      .got("model_type " + model.model_type)
      .need(need);
}

// Returns the model with the head of the recipe's task. `continued` are the classes of the adapter that the
// recipe continues, if it is one of a classifier.
models::BaseModel with_recipe_task(const models::BaseModel& base, const config::Recipe& recipe,
                                   const std::optional<Classification>& continued) {
  check_seq2seq(base.config(), recipe);
  const auto& own = base.config().classification;
  if (config::has_classifier(recipe.task)) {
    const Classification wanted = wanted_classes(base.config(), recipe, continued);
    if (own && own->num_labels() != wanted.num_labels()) {
      throw recipe
          .error("TASK", "the base model is a classifier with another number of labels",
                 {"label_names", "num_labels", "problem_type", "task"})
          .got(std::to_string(wanted.num_labels()) + " labels")
          .need(std::to_string(own->num_labels()) + ", as base_model has")
          .hint("train from the model of which that classifier was made");
    }
    return base.as_classifier(wanted);
  }
  if (recipe.task == config::Task::MaskedLm) return base.as_masked_lm();
  if (base.config().is_encoder) {
    throw recipe.error("TASK", "the base model is an encoder", {"task", "base_model"})
        .got("task: causal_lm")
        .need("task: classification, token_classification or masked_lm");
  }
  if (!own) return base;
  throw recipe.error("TASK", "the base model is a classifier", {"task", "base_model"})
      .got("task: causal_lm")
      .need(own->of_tokens() ? "task: token_classification" : "task: classification");
}

}  // namespace

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
  for (const auto& [id, name] : recipe.added_tokens_overrides) hash.add("name " + id + ' ' + name);
  for (const auto& [role, token] : recipe.special_tokens) hash.add(role + ' ' + token);
  for (const std::string& token : recipe.additional_special_tokens) hash.add("special " + token);
  for (const std::string& token : recipe.tokens) hash.add("token " + token);
  return std::to_string(hash.value());
}

std::optional<text::Tokenizer> load_recipe_tokenizer(const config::Recipe& recipe,
                                                     config::Problems& problems) {
  const std::string& folder = tokenizer_folder(recipe);
  if (std::ranges::all_of(recipe.datasets, is_token_ids) &&
      std::ranges::all_of(recipe.test_datasets, is_token_ids) && !recipe.names_tokens() &&
      recipe.tokenizer_config.empty() && !models::BaseModel::has_tokenizer(folder)) {
    log::warn(folder + " has no tokenizer: training on token ids, and no tokenizer is saved");
    return std::nullopt;
  }
  text::Tokenizer tokenizer = models::BaseModel::tokenizer(folder);
  rename_tokens(recipe, recipe, tokenizer, problems);
  add_tokens(recipe, recipe, tokenizer, problems);
  return tokenizer;
}

namespace {

// Returns the model with as many rows as the recipe's tokenizer and keys ask for.
models::BaseModel with_recipe_vocabulary(const models::BaseModel& base, const config::Recipe& recipe,
                                         const std::optional<text::Tokenizer>& tokenizer) {
  const int64_t rows = base.config().vocab_size;
  // A tokenizer of the base's own that has more tokens than it has rows is a slip of the folder.
  if (!tokenizer || !(tokenizer->has_new_tokens() || has_row_keys(recipe))) return base;
  const bool is_adapter = recipe.adapter != config::AdapterKind::None;
  const int64_t tokens = tokenizer->vocab_size();
  // Rows that belong to no token would only make an adapter's files as large as the tables.
  const bool is_rounded = recipe.resize_token_embeddings_to_32x && (!is_adapter || rows < tokens);
  const int64_t need = is_rounded ? round_up(tokens, int64_t{32}) : tokens;
  const bool grows = rows < need, shrinks = recipe.shrink_embeddings && rows > need;
  if (!grows && !shrinks) return base;
  log::info("the model's vocabulary " + std::string(grows ? "grows" : "shrinks") + " from " +
            group_digits(rows) + " to " + group_digits(need) + " rows");
  if (grows && is_adapter) warn_of_untrained_tokens(recipe, rows, tokens);
  return base.with_vocabulary({.count = need,
                               .are_near_mean = recipe.mean_resizing_embeddings,
                               .seed = static_cast<uint64_t>(recipe.seed)});
}

}  // namespace

models::BaseModel open_recipe_base(const config::Recipe& recipe,
                                   const std::optional<text::Tokenizer>& tokenizer) {
  const models::BaseModel base = with_recipe_config(models::BaseModel::open(recipe.base_model), recipe);
  if (!recipe.lora_model_dir.empty()) {
    const auto adapter = models::AdapterFolder::open(recipe.lora_model_dir);
    return adapter.fitted(with_recipe_task(base, recipe, adapter.classes));
  }
  const models::BaseModel grown =
      with_recipe_vocabulary(with_recipe_task(base, recipe, {}), recipe, tokenizer);
  const bool is_lora = recipe.adapter == config::AdapterKind::Lora;
  return is_lora && !recipe.lora_target_parameters.empty() ? grown.with_joined_experts() : grown;
}

models::BaseModel open_recipe_base(const config::Recipe& recipe) {
  std::optional<text::Tokenizer> tokenizer;
  if ((recipe.names_tokens() || has_row_keys(recipe)) && recipe.lora_model_dir.empty()) {
    config::Problems problems;
    tokenizer = load_recipe_tokenizer(recipe, problems);
    problems.settle();
  }
  return open_recipe_base(recipe, tokenizer);
}

}  // namespace tessera::train
