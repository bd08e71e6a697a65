#include "tessera/models/common/quantize_layers.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <set>

#include "tessera/core/error.h"
#include "tessera/models/parallelize_plan.h"
#include "tessera/nn/embedding.h"
#include "tessera/nn/linear.h"

namespace tessera::models {
namespace {

using checkpoint::CodedParameter;
using checkpoint::Quantization;

constexpr int64_t kGroup = 64;

bool is_named(const std::string& name, const std::vector<std::string>& keys) {
  return std::ranges::any_of(keys, [&](const std::string& key) {
    return name == key || name.ends_with("." + key) || name.starts_with(key + ".");
  });
}

// The linear layers that may be coded: all but routers, gates of shared experts and, unless asked for, the
// output head.
std::vector<std::pair<std::string, nn::Linear*>> candidates(const CausalLM& model, bool with_experts,
                                                            bool with_head,
                                                            const std::vector<std::string>& skipped) {
  std::set<const torch::nn::Module*> kept;
  for (const auto& block : model.blocks()) {
    const auto& sparse = block->sparse_mlp;
    if (sparse == nullptr) continue;
    kept.insert(sparse->gate.get());
    kept.insert(sparse->shared_expert_gate.get());
    if (with_experts) continue;
    for (const auto& expert : sparse->experts) {
      for (const auto& layer : expert->children()) kept.insert(layer.get());
    }
  }
  std::vector<std::pair<std::string, nn::Linear*>> found;
  for (const auto& item : model.named_modules("", /*include_self=*/false)) {
    auto* const linear = dynamic_cast<nn::Linear*>(item.value().get());
    if (linear == nullptr || kept.contains(linear) || is_named(item.key(), skipped)) continue;
    if (with_head || !linear->weight.is_same(model.head().weight())) found.emplace_back(item.key(), linear);
  }
  return found;
}

// Returns the parameter as blocks of a stored tensor, if one has them: the whole tensor, or one of the
// matrices of [matrices, in, out].
std::optional<CodedParameter> stored_blocks(const checkpoint::StoredParameter& parameter,
                                            const checkpoint::StoredTensors& files) {
  const checkpoint::StoredPart& part = parameter.parts.front();
  const bool is_whole = !part.is_transposed && part.shape == parameter.shape;
  const bool is_one_of = part.is_transposed && part.leading_dims() == 1;
  if (parameter.parts.size() > 1 || (!is_whole && !is_one_of)) return std::nullopt;
  const auto form = files.find(part.name) != nullptr ? files.form(part.name) : std::nullopt;
  if (!form) return std::nullopt;
  const int64_t first_row = is_one_of ? part.box.offset[0] * parameter.shape[0] : 0;
  return CodedParameter{.form = *form, .tensor = part.name, .first_row = first_row};
}

// Returns the form in which the options keep a weight with rows of so many values.
std::optional<CodedParameter> quantized(const QuantizeOptions& options, int64_t columns) {
  CodedParameter coded;
  switch (options.kind) {
    case QuantizeOptions::Kind::None: return std::nullopt;
    case QuantizeOptions::Kind::FourBit:
      coded.quantization = Quantization{kGroup, options.double_quantization};
      // A group that does not end with a row gives its scale to the smaller blocks on both sides.
      coded.form = io::block_form(options.four_bit, std::gcd(columns, kGroup));
      return coded;
    case QuantizeOptions::Kind::EightBit:
      coded.quantization = Quantization{0, false};
      coded.form = io::block_form(io::BlockKind::LlmInt8, std::gcd(columns, int64_t{256}));
      return coded;
  }
  return std::nullopt;
}

// Makes the blocks small enough for the cuts of tensor parallelism: those of attention's output fall on
// heads.
void fit_to_cuts(const std::string& name, const parallel::LayerStyle& style, CodedParameter& coded) {
  if (style.kind != parallel::LayerStyle::Kind::Rowwise || style.unit == 1) return;
  const int64_t elements = std::gcd(coded.form.elements, std::gcd(style.unit, style.inner_unit));
  if (elements == coded.form.elements) return;
  if (coded.form.kind == io::BlockKind::Ggml) {
    throw Error(ErrorKind::Config, "TENSOR-PARALLEL",
                "'" + name + "' cannot be cut between blocks: it is stored as " + io::name_of(coded.form))
        .got("heads of " + std::to_string(style.inner_unit) + " elements")
        .need("heads of a multiple of " + std::to_string(coded.form.elements))
        .hint("leave out tensor_parallel_size, or convert the file to q8_0 or q4_0");
  }
  coded.form = io::block_form(coded.form.kind, elements);
}

}  // namespace

bool holds_blocks(const checkpoint::StoredTensors& files) {
  return std::ranges::any_of(
      files.tensors(), [&](const io::TensorSpec& tensor) { return files.form(tensor.name).has_value(); });
}

std::unordered_map<std::string, CodedParameter> quantize_layers(CausalLM& model,
                                                                const checkpoint::StateDictAdapter& table,
                                                                const checkpoint::StoredTensors* files,
                                                                const QuantizeOptions& options) {
  std::unordered_map<std::string, parallel::LayerStyle> styles;
  if (options.tensor_parallel_size > 1) {
    for (const auto& [name, style] : tensor_parallel_plan(model).layers) styles.emplace(name, style);
  }
  std::unordered_map<std::string, CodedParameter> coded;
  // Files that hold blocks have chosen what stays plain.
  const bool is_quantizing =
      options.kind != QuantizeOptions::Kind::None && !(files != nullptr && holds_blocks(*files));
  // Gives a layer its form, if it has one.
  const auto code = [&](const std::string& name, auto& layer, bool may_quantize) {
    const std::string weight = name + ".weight";
    const checkpoint::StoredParameter* const parameter = table.find(weight);
    if (parameter == nullptr) return;
    std::optional<CodedParameter> found;
    if (files != nullptr) found = stored_blocks(*parameter, *files);
    if (!found && may_quantize) found = quantized(options, parameter->shape[1]);
    if (!found) return;
    found->shape = parameter->shape;
    found->type = layer.dtype();
    if (const auto style = styles.find(name); style != styles.end()) fit_to_cuts(name, style->second, *found);
    layer.set_form(found->form);
    coded.emplace(weight, *std::move(found));
  };
  const bool with_experts = options.experts || !is_quantizing;
  for (const auto& [name, linear] : candidates(model, with_experts, options.tables, options.skipped))
    code(name, *linear, is_quantizing && !linear->weight.is_same(model.head().weight()));
  if (!options.tables) return coded;
  for (const auto& item : model.named_modules("", /*include_self=*/false)) {
    auto* const embedding = dynamic_cast<nn::Embedding*>(item.value().get());
    if (embedding != nullptr) code(item.key(), *embedding, false);
  }
  return coded;
}

}  // namespace tessera::models
