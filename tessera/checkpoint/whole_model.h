// A multimodal model whose folder holds a language model as its text part. The text part is trained and run
// alone; a result takes everything else from the folder as it is.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tessera/checkpoint/state_dict_adapter.h"
#include "tessera/checkpoint/stored_tensors.h"

namespace tessera::checkpoint {

// The child of the whole model that holds all of the text part but its output projection, "lm_head". These
// are the names of Transformers 5, by which modules, adapters and checkpoints know the text part.
inline constexpr const char* kTextBody = "model.language_model";

// Tells whether a module or parameter of this name is one of a text part's.
bool is_in_text_body(const std::string& name);
// Tells the same of the name of a tensor in a multimodal folder, which may be an older one or the head's.
bool is_of_text_part(const std::string& name);

// Returns the name of Transformers 5 for a tensor of a multimodal folder. Most folders have older names:
// "language_model.model.norm.weight" for "model.language_model.norm.weight", and "language_model.lm_head".
std::string text_name(const std::string& stored);
// Returns the older name for a name of Transformers 5.
std::string older_text_name(const std::string& name);

class WholeModel {
 public:
  // `files` are all tensors of the folder, under the folder's names.
  explicit WholeModel(std::shared_ptr<const StoredTensors> files);

  const StoredTensors& files() const { return *files_; }
  // Returns the tensors of the text part alone, under the names of Transformers 5.
  std::shared_ptr<const StoredTensors> text_part() const;
  // The tensors of the folder that do not belong to the text part.
  const std::vector<io::TensorSpec>& others() const { return others_; }
  int64_t other_bytes() const;
  // Returns the table with the text part's tensors under the names that the folder has for them.
  StateDictAdapter with_stored_names(const StateDictAdapter& table) const;

 private:
  std::shared_ptr<const StoredTensors> files_;
  std::vector<io::TensorSpec> others_;
  bool has_older_names_ = false;
};

}  // namespace tessera::checkpoint
