#include "tessera/models/common/assembly.h"

#include <utility>

#include "tessera/core/error.h"
#include "tessera/io/file.h"
#include "tessera/models/common/load.h"
#include "tessera/models/registry.h"
#include "tessera/peft/adapter_start.h"
#include "tessera/peft/carried_parameters.h"

namespace tessera::models {

AdapterFolder AdapterFolder::open(const std::string& folder) {
  AdapterFolder adapter{peft::read_adapter_config(folder),
                        std::make_shared<const io::ModelFiles>(peft::open_adapter(folder)),
                        {}};
  if (io::exists(io::join_path(folder, "config.json")))
    adapter.classes = read_model_config(folder)->classification;
  return adapter;
}

BaseModel AdapterFolder::open_base(const std::string& path) const {
  const BaseModel base = BaseModel::open(path);
  return fitted(classes ? base.as_classifier(*classes) : base);
}

// Joined experts come last: with them, a model is no longer what its config.json says.
BaseModel AdapterFolder::fitted(const BaseModel& base) const {
  const auto rows = peft::carried_vocabulary(*files, base.config().tie_word_embeddings);
  const BaseModel grown = rows ? base.with_vocabulary({.count = *rows}) : base;
  return config.options.target_parameters.empty() ? grown : grown.with_joined_experts();
}

Assembly::Assembly(const BaseModel& base, const Options& options)
    : model_(build_model(base.config(), options.type)),
      table_(state_dict_adapter(*model_)),
      has_new_vocabulary_(base.has_new_vocabulary()),
      seed_(options.seed) {
  if (options.reads_files) {
    base_files_ = base.tensors();
    missing_ = check_tensors(*model_, *base_files_, options.takes_new_head);
    sources_.push_back(checkpoint::stored_source(base_files_, table_));
  }
  // This source knows the whole shapes of weights that codes will stand for; that of source() knows the
  // adapter's parameters.
  if (seed_) sources_.push_back(random_source(*model_, *seed_));
}

void Assembly::quantize(const QuantizeOptions& options) {
  coded_ = quantize_layers(*model_, table_, base_files_.get(), options);
}

namespace {

// Virtual tokens have no rows in the table of a model whose layers have embeddings of their own.
void check_adapter(const CausalLM& model, const peft::LoraOptions& options) {
  if (options.method != peft::AdapterMethod::Prompt || !model.config().has_layer_inputs) return;
  throw Error(ErrorKind::Config, "ADAPTER",
              "virtual tokens are not supported for a model with an embedding for each layer, which they "
              "have no rows of")
      .in(model.config().source_file)
      .hint("train a LoRA adapter");
}

}  // namespace

peft::LoraTargets Assembly::put_adapter(const AdapterFolder& adapter) {
  check_adapter(*model_, adapter.config.options);
  adapter_files_ = adapter.files;
  peft::LoraTargets targets =
      peft::apply_adapter(*model_, adapter.config, *adapter.files, model_->tied_modules());
  sources_.insert(sources_.begin(), peft::adapter_source(*model_, targets, adapter.files));
  return targets;
}

peft::LoraTargets Assembly::put_new_adapter(const peft::LoraOptions& options) {
  check_adapter(*model_, options);
  const peft::TiedModules tied = model_->tied_modules();
  peft::LoraTargets targets = peft::apply_lora(*model_, options, peft::sharing_modules(tied));
  if (has_new_vocabulary_) peft::carry_token_tables(*model_, token_tables(*model_), tied, targets);
  new_adapter_ = {options, targets};
  return targets;
}

std::vector<std::shared_ptr<const checkpoint::StoredTensors>> Assembly::files() const {
  std::vector<std::shared_ptr<const checkpoint::StoredTensors>> files;
  if (base_files_) files.push_back(base_files_);
  if (adapter_files_) files.push_back(checkpoint::stored_tensors(adapter_files_));
  return files;
}

std::shared_ptr<const checkpoint::ParameterSource> Assembly::source() const {
  auto sources = sources_;
  if (seed_) sources.push_back(random_source(*model_, *seed_));
  const auto plain = std::make_shared<const checkpoint::SourceList>(std::move(sources));
  for (const std::string& name : missing_) {
    if (plain->holds(name)) continue;
    throw Error(ErrorKind::Model, "TENSORS", "neither the adapter nor its base has '" + name + "'")
        .at(adapter_files_ ? adapter_files_->folder() : "");
  }
  std::shared_ptr<const checkpoint::ParameterSource> source = plain;
  if (!coded_.empty()) source = checkpoint::coded_source(plain, base_files_, coded_);
  if (!new_adapter_) return source;
  // Adapters that begin with parts of the base read its values, also those that codes stand for.
  return peft::with_adapter_start(source, *model_, new_adapter_->options, new_adapter_->targets, plain);
}

}  // namespace tessera::models
