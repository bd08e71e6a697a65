#include "tessera/peft/merge_files.h"

#include <algorithm>
#include <iterator>
#include <memory>
#include <tuple>
#include <utility>

#include <nlohmann/json.hpp>

#include "tessera/checkpoint/quantized_tensors.h"
#include "tessera/checkpoint/rewrite_folder.h"
#include "tessera/checkpoint/save_folder.h"
#include "tessera/checkpoint/special_tokens.h"
#include "tessera/checkpoint/tied_weights.h"
#include "tessera/core/error.h"
#include "tessera/core/log.h"
#include "tessera/io/file.h"
#include "tessera/io/json_reader.h"
#include "tessera/io/model_files.h"
#include "tessera/text/tokenizer/tokenizer.h"

namespace tessera::peft {
namespace {

using Texts = checkpoint::SideFiles;

// A folder that has one of these files brings a tokenizer.
constexpr const char* kVocabularyFiles[] = {"tokenizer.json", "tokenizer.model", "vocab.json"};
// An adapter's folder may bring these files without a vocabulary.
constexpr const char* kTemplateFiles[] = {"chat_template.jinja", "chat_template.json"};
constexpr const char* kTokenizerSettings[] = {"tokenizer_config.json", "special_tokens_map.json",
                                              "chat_template.jinja", "chat_template.json"};

bool is_template_file(const std::string& name) {
  return name.starts_with(text::kTemplateFolder) ||
         std::ranges::find(kTemplateFiles, name) != std::end(kTemplateFiles);
}

bool has_chat_template(const Texts& files) {
  const auto config = files.find("tokenizer_config.json");
  return std::ranges::any_of(files, [](const auto& file) { return is_template_file(file.first); }) ||
         (config != files.end() && config->second.find("\"chat_template\"") != std::string::npos);
}

// Returns the files with the special tokens of the tokenizer in the folder. One that cannot be read here may
// be of a kind that other programs know.
checkpoint::BaseFiles with_tokens_of(const std::string& folder, checkpoint::BaseFiles files) {
  try {
    const auto tokenizer = text::Tokenizer::from_folder(folder);
    return checkpoint::with_special_tokens(std::move(files), checkpoint::special_token_ids(tokenizer));
  } catch (const Error& error) {
    log::warn(std::string("config.json keeps the special tokens of the base model: ") + error.what());
    return files;
  }
}

bool config_may_tie(const std::string& config) {
  const auto json = nlohmann::json::parse(config, nullptr, /*allow_exceptions=*/false);
  return json.is_object() && json.value("tie_word_embeddings", nlohmann::json(true)) == true;
}

// Tells whether config.json may tie the embedding to a head that the files hold with other values.
bool ties_what_differs(const std::string& folder, const std::string& config) {
  if (!config_may_tie(config)) return false;
  const auto files =
      checkpoint::stored_tensors(std::make_shared<const io::ModelFiles>(io::ModelFiles::open(folder)));
  const std::string embedding = checkpoint::find_embedding(*files);
  for (const char* head : {"lm_head.weight", "language_model.lm_head.weight"}) {
    if (!embedding.empty() && files->find(head) && !checkpoint::equal_values(*files, embedding, head))
      return true;
  }
  return false;
}

}  // namespace

bool may_tie(const std::string& folder) {
  const std::string config = io::join_path(folder, "config.json");
  return io::exists(config) && config_may_tie(io::JsonReader::read_text(config));
}

bool brings_classifier(const std::string& adapter) {
  const std::string file = io::join_path(adapter, "config.json");
  if (!io::exists(file)) return false;
  const auto classes = io::JsonReader::open(file).texts("architectures");
  return std::ranges::any_of(classes, [](const std::string& name) {
    return name.ends_with("ForSequenceClassification") || name.ends_with("ForTokenClassification");
  });
}

// The tokenizer comes whole from one folder: the adapter's where that has a vocabulary, else the base's. An
// adapter without a vocabulary may still bring settings and a chat template. It was trained with them, so
// they replace the base's, and other template files of the base go, since they would win over them.
SideFiles read_side_files(const std::string& base, const std::string& adapter) {
  SideFiles files;
  files.texts = checkpoint::read_side_files(base, checkpoint::kModelFileNames);
  files.texts.merge(checkpoint::read_side_files(base, checkpoint::kProcessorFileNames));
  if (const auto config = files.texts.find("config.json"); config != files.texts.end()) {
    if (brings_classifier(adapter))
      config->second = io::JsonReader::read_text(io::join_path(adapter, "config.json"));
    config->second = checkpoint::plain_config(config->second);
  }
  const bool has_own =
      std::any_of(std::begin(kVocabularyFiles), std::end(kVocabularyFiles),
                  [&](const char* name) { return io::exists(io::join_path(adapter, name)); });
  files.texts.merge(checkpoint::read_tokenizer_files(has_own ? adapter : base));
  files.has_own_tokens = has_own;
  if (has_own) return files;
  const Texts settings = checkpoint::read_tokenizer_files(adapter, kTokenizerSettings);
  files.has_own_tokens = !settings.empty();
  if (has_chat_template(settings)) {
    std::erase_if(files.texts, [](const auto& file) { return is_template_file(file.first); });
  }
  for (const auto& [name, text] : settings) files.texts[name] = text;
  return files;
}

void write_side_files(const SideFiles& files, const std::string& folder) {
  checkpoint::write_side_files(files.texts, folder);
  if (!files.texts.contains("config.json")) return;
  const checkpoint::BaseFiles before = checkpoint::read_base_files(folder);
  checkpoint::BaseFiles after = before;
  const bool has_tokenizer = files.texts.contains("tokenizer.json");
  if (files.has_own_tokens && has_tokenizer) after = with_tokens_of(folder, std::move(after));
  if (ties_what_differs(folder, after.config)) after.config = checkpoint::untied_config(after.config);
  for (const auto& [name, text, was] :
       {std::tuple("config.json", &after.config, &before.config),
        std::tuple("generation_config.json", &after.generation, &before.generation)}) {
    if (*text != *was) io::write_file_atomic(io::join_path(folder, name), *text);
  }
}

}  // namespace tessera::peft
