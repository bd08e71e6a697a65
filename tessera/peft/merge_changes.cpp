#include "tessera/peft/merge_changes.h"

#include <utility>
#include <vector>

#include "tessera/checkpoint/rewrite_folder.h"
#include "tessera/checkpoint/tied_weights.h"
#include "tessera/checkpoint/whole_model.h"
#include "tessera/core/strings.h"
#include "tessera/peft/carried_parameters.h"
#include "tessera/peft/ia3.h"
#include "tessera/peft/layer_options.h"
#include "tessera/peft/vera_files.h"

namespace tessera::peft {

namespace {

using checkpoint::StoredTensors;
using Changes = std::map<std::string, Change>;

constexpr const char* kBiasB = ".lora_B.bias";
constexpr const char* kMultiplier = ".ia3_l.weight";
constexpr const char* kTokenRows = ".token_adapter.trainable_tokens_delta";
constexpr const char* kLambdaB = ".vera_lambda_b.weight";
constexpr const char* kLambdaD = ".vera_lambda_d.weight";
constexpr const char* kMagnitude = ".lora_magnitude_vector.weight";

void expect_shape(const io::ModelFiles& adapter, const std::string& name, const std::vector<int64_t>& need) {
  const auto& got = adapter.require(name).tensor->shape;
  if (got != need)
    throw adapter_error(adapter, name, "another shape").got(format_shape(got)).need(format_shape(need));
}

// Returns the name of the base's tensor for a parameter that the adapter names. Files of a model without its
// head lack the first component: "h.0.attn.c_attn.weight" for "transformer.h.0.attn.c_attn.weight". Those of
// a multimodal model, and adapters of it, may have the older names or those of Transformers 5.
std::string base_name(const StoredTensors& base, const std::string& parameter) {
  for (const std::string& name : {parameter, parameter.substr(parameter.find('.') + 1),
                                  checkpoint::text_name(parameter), checkpoint::older_text_name(parameter)}) {
    if (base.find(name)) return name;
  }
  return parameter;
}

// Tells whether a weight that the adapter brings is the head of a model whose files have no head, and repeats
// the embedding that the adapter brings too: PEFT saves a tied weight under both names.
bool is_tied_copy(const StoredTensors& base, const io::ModelFiles& adapter, const std::string& name) {
  if (name != "lm_head.weight" || base.find(name)) return false;
  const std::shared_ptr<const io::ModelFiles> borrowed(std::shared_ptr<void>(), &adapter);
  const auto tensors = checkpoint::stored_tensors(borrowed);
  const std::string embedding = checkpoint::find_embedding(*tensors);
  return !embedding.empty() && checkpoint::equal_values(*tensors, embedding, to_peft_name(name));
}

// Adds what a tensor of the adapter, which the model knows as `name`, changes.
void add_change(const StoredTensors& base, const io::ModelFiles& adapter, const LoraOptions& options,
                const std::string& stored, const std::string& name, Changes& changes) {
  const auto change_of = [&](const std::string& factor, const char* changed = ".weight") -> Change& {
    const std::string layer = name.substr(0, name.size() - factor.size());
    Change& change = changes[base_name(base, layer + changed)];
    change.layer = layer;
    return change;
  };
  const auto vector_of = [&](const char* ending) -> Change& {
    Change& change = change_of(ending);
    change.is_vera = true;
    return change;
  };
  if (name.ends_with(kLambdaD)) {
    vector_of(kLambdaD).factor_a = stored;
  } else if (name.ends_with(kLambdaB)) {
    vector_of(kLambdaB).factor_b = stored;
  } else if (name.ends_with(kFactorA)) {
    change_of(kFactorA).factor_a = stored;
  } else if (name.ends_with(kFactorB)) {
    change_of(kFactorB).factor_b = stored;
  } else if (name.ends_with(kMagnitude)) {
    change_of(kMagnitude).magnitude = stored;
  } else if (name.ends_with(kBiasB)) {
    change_of(kBiasB, ".bias").addition = stored;
  } else if (name.ends_with(kMultiplier)) {
    Change& change = change_of(kMultiplier);
    change.multiplier = stored;
    change.is_of_inputs = multiplies_inputs(options, change.layer);
    const bool has_bias = base.find(base_name(base, change.layer + ".bias")) != nullptr;
    if (has_bias && !change.is_of_inputs) change_of(kMultiplier, ".bias").multiplier = stored;
  } else if (name.ends_with(kTokenRows)) {
    change_of(kTokenRows).token_rows = stored;
  } else if (!is_tied_copy(base, adapter, name)) {
    changes[base_name(base, name)].replacement = stored;
  }
}

// Refuses a change of a tensor that the base lacks, or a change whose parts contradict each other.
void check_change(const StoredTensors& base, const io::ModelFiles& adapter, const LoraOptions& options,
                  const std::string& name, const Change& change, bool brings_head) {
  const std::string& any = change.any();
  const auto refuse = [&](const std::string& what) {
    throw adapter_error(adapter, any.empty() ? change.experts : any, what);
  };
  if (brings_head && !base.find(name) && any == change.replacement) return;
  if (!base.find(name)) refuse("the base model has no tensor '" + name + "'");
  if (!change.replacement.empty() && any != change.replacement && any != change.token_rows)
    refuse("the weight is both adapted and replaced");
  const AdapterMethod method = !change.multiplier.empty() ? AdapterMethod::Ia3
                               : change.is_vera           ? AdapterMethod::Vera
                                                          : AdapterMethod::Lora;
  if (change.replacement.empty() && change.experts.empty() && method != options.method)
    refuse("the tensor is not of the kind of adapter that its configuration says");
  if (!change.token_rows.empty() && any != change.token_rows)
    refuse("the embedding has changes of two kinds");
  if (!change.multiplier.empty() && any != change.multiplier) refuse("the layer has factors of two kinds");
  if (!change.experts.empty() && !any.empty()) refuse("the experts' weight has changes of two kinds");
  if (!change.is_product()) return;
  if (change.factor_a.empty() || change.factor_b.empty()) refuse("the other factor of the pair is missing");
  if (change.magnitude.empty() == options.use_dora) {
    refuse(options.use_dora ? "the layer's lora_magnitude_vector is missing"
                            : "there is a lora_magnitude_vector without use_dora");
  }
}

// Every tensor of the adapter has to belong to a change.
Changes find_changes(const StoredTensors& base, const io::ModelFiles& adapter, const LoraOptions& options,
                     const ExpertMerge* experts, bool brings_head) {
  Changes changes;
  if (experts != nullptr) {
    for (const std::string& name : experts->changed()) changes[base_name(base, name)].experts = name;
  }
  for (const io::TensorInfo* tensor : adapter.tensors()) {
    if (experts != nullptr && experts->holds(tensor->name)) continue;
    if (options.method == AdapterMethod::Vera && is_projection(tensor->name)) continue;
    const auto name = from_peft_name(tensor->name);
    if (!name.has_value()) throw adapter_error(adapter, tensor->name, "not a name that PEFT gives");
    add_change(base, adapter, options, tensor->name, *name, changes);
  }
  if (changes.empty()) {
    throw Error(ErrorKind::Model, "ADAPTER", "the adapter contains no tensor").at(adapter.folder());
  }
  for (const auto& [name, change] : changes) check_change(base, adapter, options, name, change, brings_head);
  return changes;
}

// Factors of the outputs are [out, 1], those of the inputs [1, in]. `changed` is the shape of the weight or
// bias that they multiply.
void check_multiplier(const io::ModelFiles& adapter, const Change& change, std::vector<int64_t> changed,
                      bool is_transposed) {
  if (changed.size() == 2 && is_transposed) std::swap(changed[0], changed[1]);
  if (changed.empty() || (change.is_of_inputs && changed.size() != 2))
    throw adapter_error(adapter, change.multiplier, "the base's tensor is no weight of a linear layer");
  expect_shape(
      adapter, change.multiplier,
      change.is_of_inputs ? std::vector<int64_t>{1, changed[1]} : std::vector<int64_t>{changed[0], 1});
}

void check_token_rows(const io::ModelFiles& adapter, const Change& change, const io::TensorSpec& table,
                      const std::vector<int64_t>& ids) {
  if (table.shape.size() != 2)
    throw adapter_error(adapter, change.token_rows, "the base's '" + table.name + "' is not a table");
  expect_shape(adapter, change.token_rows, {static_cast<int64_t>(ids.size()), table.shape[1]});
  for (const int64_t id : ids) {
    if (id < table.shape[0]) continue;
    throw adapter_error(adapter, change.token_rows, "the base's vocabulary has no such token")
        .got(std::to_string(id))
        .need("below " + std::to_string(table.shape[0]));
  }
}

// Compares the shapes of the adapter's tensors with those of the base. `is_transposed`: the base holds W^T.
void check_shapes(const StoredTensors& base, const io::ModelFiles& adapter, const AdapterConfig& config,
                  const Changes& changes) {
  const bool is_transposed = config.fan_in_fan_out;
  const LayerOptions options_of(config.options);
  for (const auto& [name, change] : changes) {
    const io::TensorSpec* const found = base.find(name);
    if (found == nullptr) continue;  // a head that the adapter brings
    const io::TensorSpec& weight = *found;
    if (!checkpoint::is_weight_dtype(weight.dtype)) {
      throw Error(ErrorKind::Model, "DTYPE", "an adapter cannot be merged into a weight of this type")
          .in(base.place() + ": tensor '" + name + "'")
          .got(dtype_name(weight.dtype))
          .need("F64, F32, F16 or BF16");
    }
    if (!change.experts.empty()) continue;
    if (!change.token_rows.empty()) {
      check_token_rows(adapter, change, weight, config.options.trainable_token_indices);
      if (!change.replacement.empty()) expect_shape(adapter, change.replacement, weight.shape);
    } else if (!change.multiplier.empty()) {
      check_multiplier(adapter, change, weight.shape, is_transposed);
    } else if (!change.is_product()) {
      expect_shape(adapter, change.any(), weight.shape);
    } else if (weight.shape.size() != 2) {
      throw adapter_error(adapter, change.factor_a, "the base's '" + name + "' is not a matrix");
    } else if (change.is_vera) {
      expect_shape(adapter, change.factor_a, {config.options.vera.rank});
      expect_shape(adapter, change.factor_b, {weight.shape[is_transposed ? 1 : 0]});
    } else {
      const int64_t rank = options_of(change.layer).rank;
      expect_shape(adapter, change.factor_a, {rank, weight.shape[is_transposed ? 0 : 1]});
      expect_shape(adapter, change.factor_b, {weight.shape[is_transposed ? 1 : 0], rank});
      if (!change.magnitude.empty())
        expect_shape(adapter, change.magnitude, {weight.shape[is_transposed ? 1 : 0]});
    }
  }
}

}  // namespace

std::map<std::string, Change> plan_changes(const StoredTensors& base, const io::ModelFiles& adapter,
                                           const AdapterConfig& config, bool may_tie,
                                           const ExpertMerge* experts, bool brings_head) {
  Changes changes = find_changes(base, adapter, config.options, experts, brings_head);
  const std::string head = "lm_head.weight", embedding = checkpoint::find_embedding(base);
  const auto found = changes.find(embedding);
  const auto is_table = [](const Change& change) {
    return !change.token_rows.empty() || !change.replacement.empty();
  };
  if (may_tie && found != changes.end() && is_table(found->second) && base.find(head) != nullptr &&
      !changes.contains(head) && checkpoint::equal_values(base, embedding, head))
    changes[head] = found->second;
  check_shapes(base, adapter, config, changes);
  return changes;
}

}  // namespace tessera::peft
