#include "tessera/peft/combine.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <optional>
#include <utility>

#include <ATen/ATen.h>

#include "tessera/checkpoint/rewrite_folder.h"
#include "tessera/checkpoint/stored_tensors.h"
#include "tessera/core/error.h"
#include "tessera/core/strings.h"
#include "tessera/device/host_memory.h"
#include "tessera/device/torch_dtype.h"
#include "tessera/io/file.h"
#include "tessera/peft/adapter_config_text.h"
#include "tessera/peft/adapter_files.h"
#include "tessera/peft/carried_parameters.h"
#include "tessera/peft/layer_options.h"

namespace tessera::peft {
namespace {

struct Member {
  AdapterConfig config;
  io::ModelFiles files;
  double weight;
};

// The factors of a layer in one adapter, in float64. weight: that of the adapter times its scale.
struct Factors {
  at::Tensor a, b;
  double weight = 1.0;
};

Error refusal(const Member& member, const std::string& what) {
  return Error(ErrorKind::Model, "ADAPTER", "the adapter cannot be combined with others: " + what)
      .at(member.config.source_file)
      .hint("merge the adapters one after the other with tessera merge");
}

void check_member(const Member& member, const Member& first) {
  const LoraOptions& options = member.config.options;
  if (const std::string why = why_no_sum(options); !why.empty()) throw refusal(member, why);
  if (options.has_bias) throw refusal(member, "it has biases (lora_bias)");
  if (member.config.fan_in_fan_out != first.config.fan_in_fan_out)
    throw refusal(member, "its base holds transposed weights and the other's does not (fan_in_fan_out)");
}

at::Tensor read_factor(const Member& member, const std::string& name) {
  const auto place = member.files.find(name);
  if (!place) throw adapter_error(member.files, name, "the other factor of the pair is missing");
  const std::vector<int64_t>& shape = place.tensor->shape;
  if (shape.size() != 2) throw adapter_error(member.files, name, "a factor is not a matrix");
  const at::Tensor factor = at::empty(shape, on_host(at::kDouble));
  checkpoint::read_box(member.files, name, checkpoint::whole_box(shape), factor);
  return factor;
}

// Adds the factors of an adapter to those of its layers.
void add_factors(const Member& member, std::map<std::string, std::vector<Factors>>& layers) {
  const LayerOptions options_of(member.config.options);
  for (const io::TensorInfo* tensor : member.files.tensors()) {
    const std::string& name = tensor->name;
    const auto parameter = from_peft_name(name);
    const bool is_a = name.ends_with(kFactorA);
    if (!parameter || (!is_a && !name.ends_with(kFactorB)))
      throw refusal(member, "its tensor '" + name + "' is no factor of a layer");
    const size_t end = std::string(kFactorA).size();
    const std::string stem = name.substr(0, name.size() - end);
    const std::string layer = parameter->substr(0, parameter->size() - end);
    if (!is_a) {
      if (!member.files.find(stem + kFactorA))
        throw adapter_error(member.files, name, "the other factor of the pair is missing");
      continue;
    }
    const LoraOptions options = options_of(layer);
    Factors factors{read_factor(member, name), read_factor(member, stem + kFactorB),
                    member.weight * lora_scaling(options)};
    std::vector<Factors>& known = layers[layer];
    const bool fits = factors.a.size(0) == options.rank && factors.b.size(1) == options.rank &&
                      (known.empty() ||
                       (known[0].a.size(1) == factors.a.size(1) && known[0].b.size(0) == factors.b.size(0)));
    if (!fits) {
      throw adapter_error(member.files, name, "the factors do not fit the rank, or the other adapters' layer")
          .got(format_shape(factors.a.sizes().vec()) + " and " + format_shape(factors.b.sizes().vec()));
    }
    known.push_back(std::move(factors));
  }
}

// Returns the combined factors, of rank `rank`; those that an adapter lacks are zeros.
Factors combine(const std::vector<Factors>& parts, Combination combination, int64_t rank) {
  at::Tensor a = at::zeros({rank, parts[0].a.size(1)}, on_host(at::kDouble));
  at::Tensor b = at::zeros({parts[0].b.size(0), rank}, on_host(at::kDouble));
  int64_t first = 0;
  for (const Factors& part : parts) {
    const int64_t own = part.a.size(0);
    if (combination == Combination::Cat) {
      a.narrow(0, first, own).copy_(part.a * part.weight);
      b.narrow(1, first, own).copy_(part.b);
      first += own;
      continue;
    }
    const double root = std::sqrt(std::abs(part.weight));
    a.narrow(0, 0, own).add_(part.a, std::copysign(root, part.weight));
    b.narrow(1, 0, own).add_(part.b, root);
  }
  return {std::move(a), std::move(b)};
}

int64_t largest_rank(const Member& member) {
  const LoraOptions& options = member.config.options;
  int64_t rank = options.rank;
  for (const auto& [name, own] : options.rank_pattern) rank = std::max(rank, own);
  return rank;
}

// Returns the rank of the result.
int64_t combined_rank(const std::vector<Member>& members, Combination combination) {
  int64_t rank = 0;
  for (const Member& member : members) {
    const int64_t own = largest_rank(member);
    if (combination == Combination::Linear && rank != 0 && own != rank) {
      throw refusal(member, "a linear combination needs adapters of one rank")
          .got(std::to_string(own))
          .need(std::to_string(rank))
          .hint("the combination cat takes any ranks");
    }
    rank = combination == Combination::Linear ? own : rank + own;
  }
  return rank;
}

}  // namespace

std::string why_no_sum(const LoraOptions& options) {
  if (options.method != AdapterMethod::Lora) return "it is not of kind LORA";
  if (options.use_dora) return "DoRA's change is not a sum (use_dora)";
  return why_beyond_layers(options);
}

std::string why_beyond_layers(const LoraOptions& options) {
  if (options.method == AdapterMethod::Prompt) return "it puts rows before each text (prompt tuning)";
  if (options.method == AdapterMethod::Norms) return "it replaces the norms of the model (LN tuning)";
  if (!options.modules_to_save.empty()) return "it replaces whole modules (modules_to_save)";
  if (!options.trainable_token_indices.empty())
    return "it replaces rows of the embedding (trainable_token_indices)";
  if (!options.target_parameters.empty()) return "it adapts parameters of experts (target_parameters)";
  return "";
}

WeightedAdapter read_weighted_adapter(const std::string& text) {
  if (io::exists(text)) return {text};
  std::string folder = text, name;
  const size_t equals = folder.find('='), slash = folder.find('/');
  if (equals != std::string::npos && (slash == std::string::npos || equals < slash)) {
    name = folder.substr(0, equals);
    folder.erase(0, equals + 1);
  }
  if (io::exists(folder)) return {folder, 1.0, name};
  const size_t colon = folder.rfind(':');
  if (colon == std::string::npos) return {folder, 1.0, name};
  double weight = 0.0;
  const char* const end = folder.data() + folder.size();
  const auto read = std::from_chars(folder.data() + colon + 1, end, weight);
  if (read.ec != std::errc() || read.ptr != end || !std::isfinite(weight) || weight == 0.0) {
    throw Error(ErrorKind::Config, "ADAPTER-WEIGHT", "bad weight of an adapter")
        .at("command line")
        .got("'" + folder.substr(colon + 1) + "'")
        .need("DIR:WEIGHT with a number other than 0");
  }
  return {folder.substr(0, colon), weight, name};
}

void combine_adapters(const AdapterSet& set, const std::string& output) {
  std::vector<Member> members;
  std::map<std::string, std::vector<Factors>> layers;
  for (const WeightedAdapter& one : set.adapters) {
    members.push_back({read_adapter_config(one.folder), open_adapter(one.folder), one.weight});
    check_member(members.back(), members.front());
    add_factors(members.back(), layers);
  }
  LoraOptions options;
  options.rank = combined_rank(members, set.combination);
  options.alpha = static_cast<double>(options.rank);
  LoraTargets targets;
  targets.fan_in_fan_out = members.front().config.fan_in_fan_out;
  for (const auto& [layer, parts] : layers) targets.adapted.push_back(layer);
  options.target_modules = targets.adapted;

  const bool is_wide = std::ranges::any_of(members, [](const Member& member) {
    return std::ranges::any_of(member.files.tensors(),
                               [](const io::TensorInfo* tensor) { return tensor->dtype == DType::F64; });
  });
  const DType dtype = is_wide ? DType::F64 : DType::F32;
  std::vector<io::TensorSpec> specs;
  for (const auto& [layer, parts] : layers) {
    specs.push_back({to_peft_name(layer + kFactorA), dtype, {options.rank, parts[0].a.size(1)}});
    specs.push_back({to_peft_name(layer + kFactorB), dtype, {parts[0].b.size(0), options.rank}});
  }
  io::ShardedSafetensorsWriter writer(output, specs, adapter_weights());
  for (const auto& [layer, parts] : layers) {
    const Factors factors = combine(parts, set.combination, options.rank);
    for (const auto& [name, value] : {std::pair(kFactorA, factors.a), std::pair(kFactorB, factors.b)}) {
      const at::Tensor written = value.to(to_scalar_type(dtype)).contiguous();
      writer.write(to_peft_name(layer + name), 0, host_span<const char>(written).data(),
                   static_cast<int64_t>(written.nbytes()));
    }
  }
  writer.commit();
  io::write_file_atomic(io::join_path(output, "adapter_config.json"),
                        adapter_config_text(options, targets, members.front().config.base_model));
  checkpoint::write_side_files(checkpoint::read_tokenizer_files(set.adapters.front().folder), output);
}

}  // namespace tessera::peft
