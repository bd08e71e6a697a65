// A model as its user names it: a Hugging Face folder, or a GGUF file, which is read as the folder that it
// stands for.
#pragma once

#include <memory>
#include <string>

#include "tessera/checkpoint/gguf_model.h"
#include "tessera/checkpoint/save_folder.h"
#include "tessera/checkpoint/stored_tensors.h"
#include "tessera/checkpoint/whole_model.h"
#include "tessera/models/common/causal_lm.h"
#include "tessera/text/tokenizer/tokenizer.h"

namespace tessera::models {

class BaseModel {
 public:
  // Reads the configuration of the model at `path`; its weights and its tokenizer are opened by tensors() and
  // tokenizer(). If it ties the output projection to the embedding but the weights have another one of their
  // own, the model has that one, as in Transformers: config() and files() say that nothing is tied. Throws
  // Error(Model) for what is no model, or one of an unknown family.
  static BaseModel open(const std::string& path);

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
  std::shared_ptr<const checkpoint::StoredTensors> tensors_or_none() const;

  std::string path_;
  std::shared_ptr<const checkpoint::GgufModel> gguf_;  // null for a folder
  checkpoint::BaseFiles files_;
  std::shared_ptr<const ModelConfig> config_;
};

}  // namespace tessera::models
