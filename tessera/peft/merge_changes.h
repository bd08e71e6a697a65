// The changes that an adapter makes to the tensors of its base model.
#pragma once

#include <map>
#include <string>

#include "tessera/checkpoint/stored_tensors.h"
#include "tessera/io/model_files.h"
#include "tessera/peft/adapter_files.h"
#include "tessera/peft/expert_merge.h"

namespace tessera::peft {

// The change of one tensor of the base: a product of two factors is added, a vector is added, its rows or
// columns are multiplied, some rows are replaced, or another tensor takes its place. All but `layer` are
// names in the adapter's file, and empty where there is none.
struct Change {
  std::string layer;  // the model's name for the layer that is adapted
  std::string factor_a, factor_b;
  bool is_vera = false;       // the factors are the vectors d and b around shared matrices (vera.h)
  std::string magnitude;      // beside factors: of the rows after the addition (dora.h)
  std::string addition;       // to a bias, without any of the others
  std::string multiplier;     // of a weight or of a bias, without any of the others (ia3.h)
  bool is_of_inputs = false;  // says whether the multiplier is one of the layer's inputs
  std::string token_rows;     // in place of those of trainable_token_indices
  // The table's name of the tensor, to whose experts' weights factors are added (expert_merge.h), without any
  // of the others.
  std::string experts;
  std::string replacement;  // of the whole tensor, which token_rows then change; without any of the others

  const std::string& any() const {
    for (const std::string* name : {&factor_a, &factor_b, &magnitude, &addition, &multiplier, &token_rows}) {
      if (!name->empty()) return *name;
    }
    return replacement;
  }
  bool is_product() const {
    return addition.empty() && multiplier.empty() && token_rows.empty() && replacement.empty() &&
           experts.empty();
  }
};

// Plans the changes, by the names of the base's tensors. Throws Error(Model, "ADAPTER") where a tensor of the
// adapter belongs to none of the base's of its shape, or contradicts another one, and Error(Model, "DTYPE")
// for a base's tensor that is no weight. `may_tie`: the base's config.json may tie the output projection to
// the embedding; if the files hold it nevertheless, with the same values, it changes as the embedding does.
// `experts`: null unless the adapter has factors of experts. `brings_head`: the adapter is a classifier's,
// and brings layers that the base need not have; their changes are replacements.
std::map<std::string, Change> plan_changes(const checkpoint::StoredTensors& base,
                                           const io::ModelFiles& adapter, const AdapterConfig& config,
                                           bool may_tie, const ExpertMerge* experts = nullptr,
                                           bool brings_head = false);

}  // namespace tessera::peft
