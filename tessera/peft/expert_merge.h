// Adds LoRA factors of experts to the tensors in which files hold the experts' weights.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <torch/nn/module.h>

#include "tessera/checkpoint/parameter_source.h"
#include "tessera/checkpoint/state_dict_adapter.h"
#include "tessera/peft/adapter_files.h"

namespace tessera::peft {

// The base model with joined experts, on the meta device, and the table of its own files, whose names those
// of the folder may differ from as merge_adapter() allows for.
struct ExpertBase {
  std::shared_ptr<torch::nn::Module> model;
  checkpoint::StateDictAdapter table;
  TiedModules tied;
};

class ExpertMerge {
 public:
  // Puts the adapter on the model. Throws Error(Model, "ADAPTER") if it does not fit.
  ExpertMerge(const ExpertBase& base, const AdapterConfig& config,
              const std::shared_ptr<const io::ModelFiles>& adapter);

  // Tells whether a tensor of the adapter's files holds factors of experts.
  bool holds(const std::string& stored) const { return factors_.contains(stored); }
  // Names of the base's tensors, as its table has them, that such factors change.
  std::vector<std::string> changed() const;
  // Adds the change to `rows`, float64, which are the rows from `first` on of the tensor of this name.
  void add(const std::string& tensor, int64_t first, const at::Tensor& rows) const;

 private:
  struct Part {
    std::string layer;
    const checkpoint::StoredPart* part = nullptr;
    double scaling = 1.0;
    int64_t rank = 0;
    std::vector<int64_t> shape;  // of the layer's weight
  };
  struct Factors {
    std::string layer;
    at::Tensor a, b;
  };
  const Factors& factors_of(const Part& part) const;

  checkpoint::StateDictAdapter base_table_;
  std::shared_ptr<const checkpoint::ParameterSource> source_;
  std::set<std::string> factors_;
  std::map<std::string, std::vector<Part>> parts_;  // by the base's tensor
  mutable Factors last_;
};

}  // namespace tessera::peft
