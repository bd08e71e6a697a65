#include "tessera/models/decoder/read_rope.h"

#include <algorithm>
#include <cmath>

#include "tessera/models/common/read_config.h"

namespace tessera::models {
namespace {

constexpr double kHuge = 1e18;

std::string section_name(const io::JsonReader& reader) {
  return reader.has("rope_scaling") ? "rope_scaling" : "rope_parameters";
}

nn::RopeType parse_rope_type(const io::JsonReader& rope, const std::string& section) {
  const std::string key = rope.has("rope_type") ? "rope_type" : "type";
  const std::string name = rope.text(key, "default");
  if (name == "default" || name == "mrope") return nn::RopeType::Default;
  if (name == "linear") return nn::RopeType::Linear;
  if (name == "dynamic") return nn::RopeType::Dynamic;
  if (name == "llama3") return nn::RopeType::Llama3;
  if (name == "yarn") return nn::RopeType::Yarn;
  if (name == "longrope" || name == "su") return nn::RopeType::LongRope;
  throw unsupported(rope, section + "." + key, "RoPE type '" + name + "' is not implemented")
      .need("default, linear, dynamic, llama3, yarn or longrope");
}

double original_ratio(const nn::RopeOptions& o) {
  return static_cast<double>(o.max_position_embeddings) /
         static_cast<double>(o.original_max_position_embeddings);
}

void read_llama3(const io::JsonReader& rope, nn::RopeOptions& out) {
  out.low_freq_factor = rope.number("low_freq_factor", 1e-6, 1e6);
  out.high_freq_factor = rope.number("high_freq_factor", 1e-6, 1e6);
  // The two may be equal, as in Llama 4: then nothing lies between them.
  if (out.high_freq_factor < out.low_freq_factor) {
    throw rope.problem("high_freq_factor", "must not be below low_freq_factor");
  }
}

void read_yarn(const io::JsonReader& rope, nn::RopeOptions& out) {
  if (!rope.has("factor")) out.factor = original_ratio(out);
  out.beta_fast = rope.number("beta_fast", 1e-6, 1e6, 32.0);
  out.beta_slow = rope.number("beta_slow", 1e-6, 1e6, 1.0);
  out.truncate = rope.boolean("truncate", true);
  const double mscale = rope.number("mscale", 0.0, 1e6, 0.0);
  const double mscale_all_dim = rope.number("mscale_all_dim", 0.0, 1e6, 0.0);
  const double inferred = nn::yarn_attention_factor(out.factor, mscale, mscale_all_dim);
  out.attention_factor = rope.number("attention_factor", 1e-6, 1e6, inferred);
}

void read_longrope(const io::JsonReader& rope, nn::RopeOptions& out) {
  if (!rope.has("factor")) out.factor = original_ratio(out);
  const auto factors = [&](const char* key) {
    const auto read = rope.numbers(key, 1e-9, 1e9);
    if (std::ssize(read) != out.head_dim / 2) {
      throw rope.problem(key, "must have a number for each pair of rotated elements")
          .got(std::to_string(read.size()) + " numbers")
          .need(std::to_string(out.head_dim / 2));
    }
    return read;
  };
  out.short_factors = factors("short_factor");
  out.long_factors = factors("long_factor");
  const double length = static_cast<double>(out.original_max_position_embeddings);
  const double inferred = out.factor <= 1.0 ? 1.0 : std::sqrt(1.0 + std::log(out.factor) / std::log(length));
  out.attention_factor = rope.number("attention_factor", 1e-6, 1e6, inferred);
}

// The type that older files call by other names where a Phi-3 model has it.
bool is_longrope(const io::JsonReader& rope) { return rope.has("short_factor") && rope.has("long_factor"); }

constexpr const char* kPartialKey = "partial_rotary_factor";

// The type in which a share of the angles is 0 instead of a share of the head left out.
bool is_proportional(const io::JsonReader& rope, const RopeDefaults& defaults) {
  return defaults.takes_proportional && rope.text("rope_type", "default") == "proportional";
}

// Returns the number of elements that are rotated. `rope`: the section, if there is one.
int64_t rotated_elements(const io::JsonReader& reader, const std::optional<io::JsonReader>& rope,
                         const ModelConfig& config, const RopeDefaults& defaults) {
  const int64_t head_dim = defaults.head_dim.value_or(config.head_dim);
  const char* const key = defaults.partial_key == nullptr ? kPartialKey : defaults.partial_key;
  double share = reader.number(key, 0.0, 1.0, defaults.partial);
  if (rope && !is_proportional(*rope, defaults)) share = rope->number(kPartialKey, 0.0, 1.0, share);
  if (share == 1.0) {
    if (head_dim % 2 == 0) return head_dim;
    throw reader.problem("head_dim", "rotary positions need an even head size").got(std::to_string(head_dim));
  }
  if (defaults.partial_key == nullptr) {
    throw unsupported(reader, key, "rotating a part of each head is not implemented for this model_type");
  }
  const auto elements = static_cast<int64_t>(static_cast<double>(head_dim) * share);
  if (elements >= 2 && elements % 2 == 0) return elements;
  throw reader.problem(key, "rotary positions need an even number of rotated elements of a head")
      .got(std::to_string(elements) + " of head_dim " + std::to_string(head_dim));
}

}  // namespace

std::optional<io::JsonReader> rope_section(const io::JsonReader& reader) {
  return reader.object(section_name(reader));
}

nn::RopeOptions read_rope(const io::JsonReader& reader, const ModelConfig& config,
                          const RopeDefaults& defaults) {
  nn::RopeOptions out;
  out.max_position_embeddings = config.max_position_embeddings;
  const std::string section = section_name(reader);
  std::optional<io::JsonReader> rope = rope_section(reader);
  bool is_own = false;
  if (rope.has_value()) {
    for (const char* type : {"full_attention", "sliding_attention"}) {
      if (!rope->has(type)) continue;
      if (defaults.layer_type.empty()) {
        throw unsupported(reader, section + "." + type,
                          "RoPE that differs between layers is not implemented for this model_type");
      }
      is_own = true;
    }
    if (is_own) rope = rope->object(defaults.layer_type);
  }
  if (defaults.is_unscaled && !is_own) rope.reset();
  out.theta = defaults.theta_key == nullptr
                  ? defaults.theta
                  : reader.number(defaults.theta_key, 1.0 + 1e-9, kHuge, defaults.theta);
  if (rope.has_value()) out.theta = rope->number("rope_theta", 1.0 + 1e-9, kHuge, out.theta);
  out.head_dim = rotated_elements(reader, rope, config, defaults);
  if (!rope.has_value()) return out;
  if (is_proportional(*rope, defaults)) {
    out.type = nn::RopeType::Proportional;
    out.factor = rope->number("factor", 1e-6, 1e9, 1.0);
    const double share = rope->number(kPartialKey, 0.0, 1.0, 1.0);
    out.turning = static_cast<int64_t>(share * static_cast<double>(out.head_dim)) / 2;
    return out;
  }
  out.type = is_longrope(*rope) ? nn::RopeType::LongRope : parse_rope_type(*rope, section);
  if (out.type == nn::RopeType::Default) return out;

  const bool needs_factor = out.type == nn::RopeType::Linear || out.type == nn::RopeType::Llama3;
  out.factor = rope->number("factor", 1e-6, 1e9, needs_factor ? std::nullopt : std::optional<double>(1.0));
  // The key of the model comes before that of the section, as in Transformers.
  const int64_t in_section = rope->integer("original_max_position_embeddings", 1, kMaxSize,
                                           defaults.original_length.value_or(config.max_position_embeddings));
  out.original_max_position_embeddings =
      reader.integer("original_max_position_embeddings", 1, kMaxSize, in_section);
  if (out.type == nn::RopeType::Llama3) read_llama3(*rope, out);
  if (out.type == nn::RopeType::Yarn) read_yarn(*rope, out);
  if (out.type == nn::RopeType::LongRope) read_longrope(*rope, out);
  if (out.type == nn::RopeType::Dynamic && out.head_dim <= 2) {
    throw rope->problem("rope_type", "dynamic scaling needs a head size above 2");
  }
  return out;
}

nn::RopeOptions read_mistral_rope(const io::JsonReader& reader, const ModelConfig& config,
                                  const YarnDefaults& absent, RopeDefaults defaults) {
  const auto section = rope_section(reader);
  if (!section) defaults.theta = absent.theta;
  nn::RopeOptions rope = read_rope(reader, config, defaults);
  if (!section) {
    rope.type = nn::RopeType::Yarn;
    rope.factor = absent.factor;
    rope.original_max_position_embeddings = absent.original_length;
    rope.attention_factor = nn::yarn_attention_factor(rope.factor, 1.0, 1.0);
  }
  rope.query_beta = section ? section->number("llama_4_scaling_beta", 0.0, 1e3, 0.0) : 0.1;
  rope.query_length = std::max<int64_t>(1, rope.original_max_position_embeddings);
  return rope;
}

void bound_generation(ModelConfig& config, const nn::RopeOptions& rope) {
  if (rope.type == nn::RopeType::Dynamic) {
    config.generation_bound = {
        config.max_position_embeddings,
        "generating beyond max_position_embeddings with dynamic RoPE is not implemented"};
  }
  if (rope.type == nn::RopeType::LongRope) {
    config.generation_bound = {
        std::min(rope.original_max_position_embeddings, config.max_position_embeddings),
        "generating beyond original_max_position_embeddings with longrope is not implemented"};
  }
}

}  // namespace tessera::models
