// A model as its user names it: a Hugging Face folder, or a GGUF file, which is read as the folder that it
// stands for.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "tessera/checkpoint/gguf_model.h"
#include "tessera/checkpoint/save_folder.h"
#include "tessera/checkpoint/stored_tensors.h"
#include "tessera/checkpoint/vocabulary_rows.h"
#include "tessera/checkpoint/whole_model.h"
#include "tessera/models/common/causal_lm.h"
#include "tessera/text/tokenizer/tokenizer.h"

namespace tessera::models {

// Opens all weights of a model's folder under the files' names (checkpoint::model_tensors()), whatever its
// model_type. Throws Error(Model).
std::shared_ptr<const checkpoint::StoredTensors> folder_tensors(const std::string& path);

class BaseModel {
 public:
  // Reads the configuration of the model at `path`; its weights and its tokenizer are opened by tensors() and
  // tokenizer(). If it ties the output projection to the embedding but the weights have another one of their
  // own, the model has that one, as in Transformers: config() and files() say that nothing is tied. Throws
  // Error(Model) for what is no model, or one of an unknown family.
  static BaseModel open(const std::string& path);

  // Returns this model with a vocabulary of another size: config(), files() and tensors() say so, and the
  // tables of tokens have the rows that `rows` describes. The same model if it has as many.
  BaseModel with_vocabulary(const checkpoint::VocabularyRows& rows) const;
  // Returns this model with other values of keys of its config.json, or of the text_config that it is read
  // from: a JSON text for each key. rope_scaling goes into rope_parameters if the file has them. Throws
  // Error(Model) for what the file itself would be refused for.
  BaseModel with_config(const std::map<std::string, std::string>& values) const;
  // Returns this model with the experts of a layer as Transformers has them in memory
  // (ModelConfig::with_joined_experts()). The files that it reads and writes stay the same.
  BaseModel with_joined_experts() const;
  // Returns this model with the head of a classifier of these labels in the place of its own
  // (classifier_config.h), which its files may lack. The same model if it is that classifier.
  BaseModel as_classifier(const Classification& classification) const;
  // Does the same for the head of a masked language model (masked_lm_config()).
  BaseModel as_masked_lm() const;
  // Tells whether the vocabulary has another size than in the files.
  bool has_new_vocabulary() const { return rows_.has_value(); }

  const ModelConfig& config() const { return *config_; }
  // The small files of the folder. A GGUF file's say that the weights are float32.
  const checkpoint::BaseFiles& files() const { return files_; }
  // Opens the weights. Quantised ones stay in their files' blocks, and are expanded as they are read. Those
  // of a text part have the names of Transformers 5.
  std::shared_ptr<const checkpoint::StoredTensors> tensors() const;
  // Opens the model whose text part this one is; null for any other model.
  std::shared_ptr<const checkpoint::WholeModel> whole() const;

  // Tells whether a model at `path` is read as a GGUF file: whether a file is there, and no folder.
  static bool is_gguf(const std::string& path);
  // Tells whether the model brings a tokenizer. A GGUF file counts as one that does: without one, tokenizer()
  // refuses it.
  static bool has_tokenizer(const std::string& path);
  // Opens the tokenizer of the model at `path`. Throws Error(Model).
  static text::Tokenizer tokenizer(const std::string& path);

 private:
  void untie_what_differs();
  void take_form_of_files();
  std::shared_ptr<const checkpoint::StoredTensors> tensors_or_none() const;
  std::shared_ptr<const checkpoint::StoredTensors> stored() const;

  std::string path_;
  std::shared_ptr<const checkpoint::GgufModel> gguf_;  // null for a folder
  checkpoint::BaseFiles files_;
  std::shared_ptr<const ModelConfig> config_;
  std::optional<checkpoint::VocabularyRows> rows_;  // set if they are not those of the files
};

}  // namespace tessera::models
