#include "tessera/checkpoint/gguf_model.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "tessera/checkpoint/rope_factors.h"
#include "tessera/core/error.h"
#include "tessera/core/strings.h"

namespace tessera::checkpoint {
namespace {

struct Found {
  const GgufName* name = nullptr;
  std::string hugging_face;
};

// Returns the name of a tensor, and Hugging Face's with the number of the layer; nullopt if no model of the
// architecture with so many layers has the tensor.
std::optional<Found> find_name(const GgufArchitecture& architecture, const std::string& gguf,
                               int64_t num_layers) {
  for (const GgufName& name : architecture.outer_names) {
    if (gguf == name.gguf) return Found{&name, name.hugging_face};
  }
  if (gguf.rfind("blk.", 0) != 0) return std::nullopt;
  const size_t dot = gguf.find('.', 4);
  if (dot == std::string::npos) return std::nullopt;
  const std::string layer = gguf.substr(4, dot - 4), rest = gguf.substr(dot + 1);
  int64_t index = -1;
  const auto parsed = std::from_chars(layer.data(), layer.data() + layer.size(), index);
  if (parsed.ec != std::errc() || std::to_string(index) != layer || index < 0 || index >= num_layers) {
    return std::nullopt;
  }
  for (const GgufName& name : architecture.layer_names) {
    if (rest == name.gguf) return Found{&name, architecture.layers + layer + "." + name.hugging_face};
  }
  return std::nullopt;
}

void require_tensor(const io::GgufFile& file, const std::string& name) {
  if (file.find(name) != nullptr) return;
  throw Error(ErrorKind::Model, "TENSORS", "a tensor is missing").in(file.path() + ": tensor '" + name + "'");
}

void require_tensors(const io::GgufFile& file, std::span<const GgufName> names, const std::string& prefix) {
  for (const GgufName& name : names) {
    if (name.is_required) require_tensor(file, prefix + name.gguf);
  }
}

const GgufArchitecture& architecture_of(const io::GgufFile& file,
                                        const std::vector<GgufArchitecture>& known) {
  const std::string& name = file.get_string("general.architecture");
  std::vector<std::string> names;
  for (const GgufArchitecture& architecture : known) {
    if (name == architecture.name) return architecture;
    names.push_back(architecture.name);
  }
  throw Error(ErrorKind::Model, "ARCHITECTURE", "no model of this architecture")
      .in(file.path() + ": key 'general.architecture'")
      .got(name)
      .need(join(names, ", "));
}

struct Shape {
  int64_t layers = 0, heads = 0, kv_heads = 0, head_dim = 0;
};

int64_t positive(const io::GgufFile& file, const std::string& key) {
  const int64_t value = file.get_int(key);
  if (value <= 0) {
    throw Error(ErrorKind::Model, "CONFIG", "bad size")
        .in(file.path() + ": key '" + key + "'")
        .got(std::to_string(value))
        .need("at least 1");
  }
  return value;
}

// Returns the number of a key, which must be above zero; `fallback` if the key is missing, NAN for none. The
// file stores a float32; the result is the shortest decimal that rounds to it, which is the one that it was
// made from: 1e-05, not 9.999999747378752e-06.
double positive_number(const io::GgufFile& file, const std::string& key, double fallback = NAN) {
  const double stored = std::isnan(fallback) ? file.get_float(key) : file.get_float(key, fallback);
  if (!std::isfinite(stored) || stored <= 0.0) {
    throw Error(ErrorKind::Model, "CONFIG", "bad number")
        .in(file.path() + ": key '" + key + "'")
        .got(std::to_string(stored))
        .need("a finite number above 0");
  }
  char text[64];
  const auto end = std::to_chars(text, text + sizeof text, static_cast<float>(stored)).ptr;
  double value = stored;
  std::from_chars(text, end, value);
  return value;
}

// Adds the scaling of rotary positions that the file gives as factors of the frequencies.
void add_rope_factors(const io::GgufFile& file, const GgufArchitecture& architecture, int64_t head_dim,
                      nlohmann::ordered_json& config) {
  const io::GgufTensor* tensor = architecture.has_rope_factors ? file.find(kRopeFactors) : nullptr;
  if (tensor == nullptr) return;
  std::vector<float> factors(static_cast<size_t>(tensor->numel()));
  file.read_f32(*tensor, 0, tensor->num_rows(), factors.data());
  if (std::ranges::all_of(factors, [](float factor) { return factor == 1.0f; })) return;
  const auto rope = find_llama3_rope(factors, config.at("rope_theta").get<double>());
  if (!rope || rope->head_dim != head_dim) {
    throw Error(ErrorKind::Model, "UNSUPPORTED", "no scaling of rotary positions has these factors")
        .in(file.path() + ": tensor '" + kRopeFactors + "'")
        .need("those of rope_type llama3 for heads of " + std::to_string(head_dim));
  }
  config["rope_scaling"] = {{"rope_type", "llama3"},
                            {"factor", rope->factor},
                            {"low_freq_factor", rope->low_freq_factor},
                            {"high_freq_factor", rope->high_freq_factor},
                            {"original_max_position_embeddings", rope->original_context}};
}

nlohmann::ordered_json make_config(const io::GgufFile& file, const GgufArchitecture& architecture,
                                   Shape& shape) {
  const std::string prefix = architecture.name + ".";
  const io::GgufTensor* embedding = file.find("token_embd.weight");
  if (embedding == nullptr || embedding->shape.size() != 2) {
    throw Error(ErrorKind::Model, "TENSORS", "no matrix of token embeddings")
        .in(file.path() + ": tensor 'token_embd.weight'");
  }
  const int64_t hidden = positive(file, prefix + "embedding_length");
  shape.heads = positive(file, prefix + "attention.head_count");
  shape.kv_heads = file.contains(prefix + "attention.head_count_kv")
                       ? positive(file, prefix + "attention.head_count_kv")
                       : shape.heads;
  const bool names_head_dim = file.contains(prefix + "attention.key_length");
  if (!names_head_dim && hidden % shape.heads != 0) {
    throw Error(ErrorKind::Model, "CONFIG", "the hidden size does not divide into heads")
        .in(file.path() + ": key '" + prefix + "attention.head_count'")
        .got(std::to_string(shape.heads) + " heads, " + prefix + "embedding_length " + std::to_string(hidden))
        .need("a divisor, or " + prefix + "attention.key_length");
  }
  shape.head_dim = names_head_dim ? positive(file, prefix + "attention.key_length") : hidden / shape.heads;
  for (const char* key : {"rope.dimension_count", "attention.value_length"}) {
    if (!file.contains(prefix + key) || file.get_int(prefix + key) == shape.head_dim) continue;
    throw Error(ErrorKind::Model, "UNSUPPORTED", "heads that are not rotated whole, or of two sizes")
        .in(file.path() + ": key '" + prefix + key + "'")
        .got(std::to_string(file.get_int(prefix + key)))
        .need(std::to_string(shape.head_dim));
  }
  shape.layers = positive(file, prefix + "block_count");
  nlohmann::ordered_json config;
  config["architectures"] = {architecture.class_name};
  config["model_type"] = architecture.model_type;
  config["vocab_size"] = embedding->shape[0];
  config["hidden_size"] = hidden;
  config["intermediate_size"] = positive(file, prefix + "feed_forward_length");
  config["num_hidden_layers"] = shape.layers;
  config["num_attention_heads"] = shape.heads;
  config["num_key_value_heads"] = shape.kv_heads;
  config["head_dim"] = shape.head_dim;
  config["hidden_act"] = "silu";
  config["max_position_embeddings"] = positive(file, prefix + "context_length");
  config["rms_norm_eps"] = positive_number(file, prefix + "attention.layer_norm_rms_epsilon");
  config["rope_theta"] = positive_number(file, prefix + "rope.freq_base", 10000.0);
  config["tie_word_embeddings"] = file.find("output.weight") == nullptr;
  if (architecture.has_bias_keys) {
    config["attention_bias"] = file.find("blk.0.attn_q.bias") != nullptr;
    config["mlp_bias"] = false;
  }
  for (const auto& [key, name] : {std::pair("tokenizer.ggml.bos_token_id", "bos_token_id"),
                                  std::pair("tokenizer.ggml.eos_token_id", "eos_token_id"),
                                  std::pair("tokenizer.ggml.padding_token_id", "pad_token_id")}) {
    if (file.contains(key)) config[name] = file.get_int(key);
  }
  config["torch_dtype"] = config["dtype"] = "float32";

  add_rope_factors(file, architecture, shape.head_dim, config);
  const std::string scaling = file.get_string(prefix + "rope.scaling.type", "none");
  if (scaling == "linear" && !config.contains("rope_scaling")) {
    config["rope_scaling"] = {{"rope_type", "linear"},
                              {"factor", positive_number(file, prefix + "rope.scaling.factor")}};
  } else if (scaling != "none") {
    throw Error(ErrorKind::Model, "UNSUPPORTED", "rope scaling that cannot be expressed in config.json")
        .in(file.path() + ": key '" + prefix + "rope.scaling.type'")
        .got(scaling)
        .need("none or linear");
  }
  return config;
}

// Returns the row of the GGUF tensor that holds row `row` of Hugging Face's.
int64_t interleaved_row(int64_t row, int64_t head_dim) {
  const int64_t half = head_dim / 2, head = row / head_dim, in_head = row % head_dim;
  return head * head_dim + in_head % half * 2 + in_head / half;
}

// Calls f(stored, count, row) for each run of rows that lie one after the other in the file: rows [stored,
// stored + count) of the file's tensor are the rows of the weight from first_row + row on.
template <class F>
void each_run(const GgufWeight& weight, int64_t first_row, int64_t num_rows, const F& f) {
  if (weight.head_dim == 0) return f(first_row, num_rows, 0);
  for (int64_t row = 0; row < num_rows; ++row) f(interleaved_row(first_row + row, weight.head_dim), 1, row);
}

void check_tensor(const io::GgufFile& file, const io::GgufTensor& tensor) {
  if (!tensor.shape.empty() && tensor.shape.size() <= 2) return;
  throw Error(ErrorKind::Model, "TENSORS", "neither a vector nor a matrix")
      .in(file.path() + ": tensor '" + tensor.name + "'")
      .got(std::to_string(tensor.shape.size()) + " dims");
}

void check_heads(const io::GgufFile& file, const io::GgufTensor& tensor, int64_t head_dim) {
  if (tensor.shape[0] % head_dim == 0 && head_dim % 2 == 0) return;
  throw Error(ErrorKind::Model, "TENSORS", "rows do not divide into heads")
      .in(file.path() + ": tensor '" + tensor.name + "'")
      .got(std::to_string(tensor.shape[0]) + " rows")
      .need("a multiple of head_dim " + std::to_string(head_dim) + ", which must be even");
}

}  // namespace

GgufModel::GgufModel(io::GgufFile file, const std::vector<GgufArchitecture>& known) : file_(std::move(file)) {
  const GgufArchitecture& architecture = architecture_of(file_, known);
  model_type_ = architecture.model_type;
  Shape shape;
  config_ = make_config(file_, architecture, shape);
  require_tensors(file_, architecture.outer_names, "");
  for (int64_t layer = 0; layer < shape.layers; ++layer) {
    require_tensors(file_, architecture.layer_names, "blk." + std::to_string(layer) + ".");
  }
  for (const io::GgufTensor& tensor : file_.tensors()) {
    if (architecture.has_rope_factors && tensor.name == kRopeFactors) continue;  // stands in the config
    const auto found = find_name(architecture, tensor.name, shape.layers);
    if (!found) {
      throw Error(ErrorKind::Model, "TENSORS", "a tensor that no model of this architecture has")
          .in(file_.path() + ": tensor '" + tensor.name + "'");
    }
    check_tensor(file_, tensor);
    const bool is_interleaved = architecture.interleaves_rope && found->name->is_rotated;
    if (is_interleaved) check_heads(file_, tensor, shape.head_dim);
    weights_.push_back(
        {{found->hugging_face, DType::F32, tensor.shape}, &tensor, is_interleaved ? shape.head_dim : 0});
    (void)weights_.back().spec.num_bytes();  // throws for one that is too large
  }
}

std::string GgufModel::config(DType dtype) const {
  nlohmann::ordered_json config = config_;
  const char* type = dtype == DType::F32 ? "float32" : dtype == DType::BF16 ? "bfloat16" : "float16";
  config["torch_dtype"] = config["dtype"] = type;
  return config.dump(2) + "\n";
}

std::string GgufModel::generation_config() const {
  nlohmann::ordered_json generation;
  for (const char* key : {"bos_token_id", "eos_token_id", "pad_token_id"}) {
    if (config_.contains(key)) generation[key] = config_[key];
  }
  return generation.empty() ? "" : generation.dump(2) + "\n";
}

void GgufModel::read_rows(const GgufWeight& weight, int64_t first_row, int64_t num_rows,
                          float* destination) const {
  const io::GgufTensor& tensor = *weight.tensor;
  const int64_t row_elements = tensor.row_elements();
  if (weight.head_dim != 0 && tensor.shape.size() == 1) {  // a bias, whose elements are permuted as rows are
    std::vector<float> stored(static_cast<size_t>(num_rows * row_elements));
    file_.read_f32(tensor, first_row, num_rows, stored.data());
    for (size_t i = 0; i < stored.size(); ++i) {
      destination[i] = stored[static_cast<size_t>(interleaved_row(static_cast<int64_t>(i), weight.head_dim))];
    }
    return;
  }
  each_run(weight, first_row, num_rows, [&](int64_t stored, int64_t count, int64_t row) {
    file_.read_f32(tensor, stored, count, destination + row * row_elements);
  });
}

void GgufModel::read_blocks(const GgufWeight& weight, int64_t first_row, int64_t num_rows,
                            char* destination) const {
  const io::GgufTensor& tensor = *weight.tensor;
  TESSERA_ASSERT(tensor.shape.size() == 2, "blocks of a matrix");
  each_run(weight, first_row, num_rows, [&](int64_t stored, int64_t count, int64_t row) {
    file_.read_blocks(tensor, stored, count, destination + row * io::GgufFile::row_bytes(tensor));
  });
}

}  // namespace tessera::checkpoint
