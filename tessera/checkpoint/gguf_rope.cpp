#include "tessera/checkpoint/gguf_rope.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "tessera/checkpoint/gguf_numbers.h"
#include "tessera/checkpoint/llama3_rope.h"
#include "tessera/core/error.h"
#include "tessera/core/strings.h"

namespace tessera::checkpoint {
namespace {

using nlohmann::ordered_json;

Error unsupported(const std::string& place, const std::string& what) {
  Error error(ErrorKind::Model, "UNSUPPORTED", what);
  error.in(place);
  return error;
}

// Returns the factor of a scaling of all frequencies, 1 for none. Files of old versions have it under another
// key.
double linear_factor(const io::GgufFile& file, const std::string& prefix) {
  const char* const key =
      file.contains(prefix + "rope.scaling.factor") ? "rope.scaling.factor" : "rope.scale_linear";
  return gguf_number(file, prefix + key, 1.0);
}

// Refuses the keys that change what YaRN computes and that config.json has no words for.
void refuse_other_yarn(const io::GgufFile& file, const std::string& prefix) {
  for (const auto& [key, usual] :
       {std::pair("rope.scaling.yarn_ext_factor", 1.0), std::pair("rope.scaling.attn_factor", 1.0),
        std::pair("rope.scaling.yarn_log_multiplier", 0.0)}) {
    const double value = file.get_float(prefix + key, usual);
    if (value == usual) continue;
    throw unsupported(file.path() + ": key '" + prefix + key + "'",
                      "YaRN with a factor that config.json lacks")
        .got(std::to_string(value))
        .need(usual == 0.0 ? "0" : "1");
  }
}

ordered_json yarn(const io::GgufFile& file, const std::string& prefix) {
  refuse_other_yarn(file, prefix);
  ordered_json scaling = {{"rope_type", "yarn"},
                          {"factor", gguf_number(file, prefix + "rope.scaling.factor")}};
  const std::string length = prefix + "rope.scaling.original_context_length";
  if (file.contains(length)) scaling["original_max_position_embeddings"] = gguf_size(file, length);
  for (const auto& [key, name] : {std::pair("rope.scaling.yarn_attn_factor", "attention_factor"),
                                  std::pair("rope.scaling.yarn_beta_fast", "beta_fast"),
                                  std::pair("rope.scaling.yarn_beta_slow", "beta_slow")}) {
    if (file.contains(prefix + key)) scaling[name] = gguf_number(file, prefix + key);
  }
  return scaling;
}

ordered_json from_factors(const io::GgufFile& file, const io::GgufTensor& tensor, int64_t head_dim,
                          double theta) {
  if (tensor.shape != std::vector<int64_t>{head_dim / 2}) {
    throw Error(ErrorKind::Model, "TENSORS", "not one factor for each rotary frequency")
        .in(file.place_of(tensor))
        .got(format_shape(tensor.shape))
        .need(format_shape({head_dim / 2}));
  }
  std::vector<float> factors(static_cast<size_t>(tensor.numel()));
  file.read_f32(tensor, 0, tensor.num_rows(), factors.data());
  if (std::ranges::all_of(factors, [](float factor) { return factor == 1.0f; })) return nullptr;
  const auto rule = fit_llama3_rope(factors, theta);
  if (!rule) {
    throw unsupported(file.place_of(tensor),
                      "the scaling factors of the rotary frequencies follow no known rule")
        .got(std::to_string(factors.front()) + " for the highest to " + std::to_string(factors.back()) +
             " for the lowest frequency")
        .need("those of Llama 3.1: 1, then a smooth rise, then one number");
  }
  return {{"rope_type", "llama3"},
          {"factor", rule->factor},
          {"low_freq_factor", rule->low_freq_factor},
          {"high_freq_factor", rule->high_freq_factor},
          {"original_max_position_embeddings", rule->original_length}};
}

}  // namespace

ordered_json gguf_rope_scaling(const io::GgufFile& file, const std::string& prefix, int64_t head_dim,
                               double theta) {
  const io::GgufTensor* const factors = file.find(kGgufRopeFactors);
  const std::string key = prefix + "rope.scaling.type";
  // A factor without this key scales all frequencies.
  std::string type = file.get_string(key, "linear");
  if (type == "linear" && linear_factor(file, prefix) == 1.0) type = "none";
  if (factors != nullptr && type != "none") {
    throw unsupported(file.place_of(*factors), "two scalings of the rotary frequencies")
        .got("these factors, and " + key + " " + type)
        .need("one of them");
  }
  if (factors != nullptr) return from_factors(file, *factors, head_dim, theta);
  if (type == "none") return nullptr;
  if (type == "linear") return {{"rope_type", "linear"}, {"factor", linear_factor(file, prefix)}};
  if (type == "yarn") return yarn(file, prefix);
  throw unsupported(file.path() + ": key '" + key + "'",
                    "rope scaling that cannot be expressed in config.json")
      .got(type)
      .need("none, linear or yarn");
}

}  // namespace tessera::checkpoint
