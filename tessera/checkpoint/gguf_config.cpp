#include "tessera/checkpoint/gguf_config.h"

#include <string>
#include <utility>

#include "tessera/checkpoint/gguf_numbers.h"
#include "tessera/checkpoint/gguf_rope.h"
#include "tessera/core/error.h"

namespace tessera::checkpoint {

GgufShape gguf_shape(const io::GgufFile& file, const GgufArchitecture& architecture) {
  GgufShape shape;
  const std::string prefix = architecture.name + ".";
  shape.hidden = gguf_size(file, prefix + "embedding_length");
  shape.heads = gguf_size(file, prefix + "attention.head_count");
  shape.kv_heads = file.contains(prefix + "attention.head_count_kv")
                       ? gguf_size(file, prefix + "attention.head_count_kv")
                       : shape.heads;
  const bool names_head_dim = file.contains(prefix + "attention.key_length");
  if (!names_head_dim && shape.hidden % shape.heads != 0) {
    throw Error(ErrorKind::Model, "CONFIG", "the hidden size does not divide into heads")
        .in(file.path() + ": key '" + prefix + "attention.head_count'")
        .got(std::to_string(shape.heads) + " heads, " + prefix + "embedding_length " +
             std::to_string(shape.hidden))
        .need("a divisor, or " + prefix + "attention.key_length");
  }
  shape.head_dim =
      names_head_dim ? gguf_size(file, prefix + "attention.key_length") : shape.hidden / shape.heads;
  for (const char* key : {"rope.dimension_count", "attention.value_length"}) {
    if (!file.contains(prefix + key) || file.get_int(prefix + key) == shape.head_dim) continue;
    throw Error(ErrorKind::Model, "UNSUPPORTED", "heads that are not rotated whole, or of two sizes")
        .in(file.path() + ": key '" + prefix + key + "'")
        .got(std::to_string(file.get_int(prefix + key)))
        .need(std::to_string(shape.head_dim));
  }
  shape.layers = gguf_size(file, prefix + "block_count");
  return shape;
}

nlohmann::ordered_json gguf_config(const io::GgufFile& file, const GgufArchitecture& architecture,
                                   const GgufShape& shape) {
  const std::string prefix = architecture.name + ".";
  const io::GgufTensor* embedding = file.find("token_embd.weight");
  if (embedding == nullptr || embedding->shape.size() != 2) {
    throw Error(ErrorKind::Model, "TENSORS", "no matrix of token embeddings")
        .in(file.path() + ": tensor 'token_embd.weight'");
  }
  nlohmann::ordered_json config;
  config["architectures"] = {architecture.class_name};
  config["model_type"] = architecture.model_type;
  config["vocab_size"] = embedding->shape[0];
  config["hidden_size"] = shape.hidden;
  config["intermediate_size"] = gguf_size(file, prefix + "feed_forward_length");
  config["num_hidden_layers"] = shape.layers;
  config["num_attention_heads"] = shape.heads;
  config["num_key_value_heads"] = shape.kv_heads;
  config["head_dim"] = shape.head_dim;
  config["hidden_act"] = "silu";
  config["max_position_embeddings"] = gguf_size(file, prefix + "context_length");
  config["rms_norm_eps"] = gguf_number(file, prefix + "attention.layer_norm_rms_epsilon");
  const double theta = gguf_number(file, prefix + "rope.freq_base", 10000.0);
  config["rope_theta"] = theta;
  config["tie_word_embeddings"] = file.find("output.weight") == nullptr;
  if (architecture.has_bias_keys) {
    config["attention_bias"] = file.find("blk.0.attn_q.bias") != nullptr;
    config["mlp_bias"] = false;
  }
  for (const auto& [key, name] : {std::pair("tokenizer.ggml.bos_token_id", "bos_token_id"),
                                  std::pair("tokenizer.ggml.eos_token_id", "eos_token_id"),
                                  std::pair("tokenizer.ggml.padding_token_id", "pad_token_id")}) {
    if (!file.contains(key)) continue;
    const int64_t id = file.get_int(key);
    if (id >= 0 && id < embedding->shape[0]) config[name] = id;  // another one means no token
  }
  config["torch_dtype"] = config["dtype"] = "float32";

  const auto scaling = gguf_rope_scaling(file, prefix, shape.head_dim, theta);
  if (!scaling.is_null()) config["rope_scaling"] = scaling;
  return config;
}

}  // namespace tessera::checkpoint
