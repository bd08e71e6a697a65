// Puts a model together on the meta device and says where its values come from: the weights of its files, an
// adapter's, and random values. Training and inference both begin so; the one then shards the model and the
// other loads it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include <c10/core/ScalarType.h>

#include "tessera/checkpoint/coded_source.h"
#include "tessera/checkpoint/parameter_source.h"
#include "tessera/checkpoint/state_dict_adapter.h"
#include "tessera/checkpoint/stored_tensors.h"
#include "tessera/io/model_files.h"
#include "tessera/models/common/base_model.h"
#include "tessera/models/common/causal_lm.h"
#include "tessera/models/common/quantize_layers.h"
#include "tessera/peft/adapter_files.h"

namespace tessera::models {

// The folder of an adapter that exists, with its files opened.
struct AdapterFolder {
  // Throws Error(Model).
  static AdapterFolder open(const std::string& folder);

  // Returns the base model at `path` as the adapter sees it: a classifier if it is the adapter of one,
  // fitted.
  BaseModel open_base(const std::string& path) const;
  // Returns `base` with the vocabulary that the adapter brings, and with joined experts if it adapts these.
  BaseModel fitted(const BaseModel& base) const;

  peft::AdapterConfig config;
  std::shared_ptr<const io::ModelFiles> files;
  // The labels of the classifier that it adapts, which a config.json beside it tells.
  std::optional<Classification> classes;
};

// Call the functions in the order in which they are declared, each of those between the first and the last at
// most once.
class Assembly {
 public:
  struct Options {
    at::ScalarType type = at::kFloat;  // of the parameters
    bool reads_files = true;           // otherwise the base's values are random, and `seed` is set
    bool takes_new_head = false;       // the files may lack the head (check_tensors())
    std::optional<uint64_t> seed;      // random values, if set, stand for those that no file holds
  };
  // Builds the model and compares it with the headers of its files. Throws what check_tensors() throws.
  Assembly(const BaseModel& base, const Options& options);

  const std::shared_ptr<CausalLM>& model() const { return model_; }
  // Returns the table of the base's files.
  const checkpoint::StateDictAdapter& table() const { return table_; }
  // Returns the tensors of the base's files; null if they are not read.
  const std::shared_ptr<const checkpoint::StoredTensors>& base_files() const { return base_files_; }
  // Lists the parameters that the base's files lack.
  const std::vector<std::string>& missing() const { return missing_; }

  // Calls quantize_layers().
  void quantize(const QuantizeOptions& options);
  // Puts an adapter that exists on the model; its files are asked before the base's. Throws what
  // peft::apply_adapter() and peft::adapter_source() throw.
  peft::LoraTargets put_adapter(const AdapterFolder& adapter);
  // Puts a new adapter on the model. Throws what peft::apply_lora() throws.
  peft::LoraTargets put_new_adapter(const peft::LoraOptions& options);

  // Lists the tensors that are read: the base's, then the adapter's.
  std::vector<std::shared_ptr<const checkpoint::StoredTensors>> files() const;
  // Returns the source of the values of all parameters; the layers must not be cut yet. Throws Error(Model,
  // "TENSORS") if neither the base nor the adapter has a parameter and there are no random values.
  std::shared_ptr<const checkpoint::ParameterSource> source() const;

 private:
  struct NewAdapter {
    peft::LoraOptions options;
    peft::LoraTargets targets;
  };

  std::shared_ptr<CausalLM> model_;
  checkpoint::StateDictAdapter table_;
  bool has_new_vocabulary_;
  std::optional<uint64_t> seed_;
  std::shared_ptr<const checkpoint::StoredTensors> base_files_;
  std::vector<std::string> missing_;
  // Asked in their order.
  std::vector<std::shared_ptr<const checkpoint::ParameterSource>> sources_;
  std::unordered_map<std::string, checkpoint::CodedParameter> coded_;
  std::shared_ptr<const io::ModelFiles> adapter_files_;  // null without an adapter that exists
  std::optional<NewAdapter> new_adapter_;
};

}  // namespace tessera::models
