// Makes GGUF files of tiny models.
#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "tests/io/gguf_builder.h"
#include "tests/testing/tiny_model.h"

namespace tessera::testing {

// GGUF's type numbers of metadata.
constexpr uint32_t kU32 = 4, kI32 = 5, kF32 = 6, kString = 8, kArray = 9;

inline std::string array_of(uint32_t type, uint64_t count, const std::string& values) {
  return raw(type) + raw(count) + values;
}

inline std::string gguf_name(std::string name) {
  static const std::vector<std::pair<std::string, std::string>> parts = {
      {"model.embed_tokens", "token_embd"},
      {"model.norm", "output_norm"},
      {"model.layers.", "blk."},
      {"input_layernorm", "attn_norm"},
      {"post_attention_layernorm", "ffn_norm"},
      {"self_attn.q_proj", "attn_q"},
      {"self_attn.k_proj", "attn_k"},
      {"self_attn.v_proj", "attn_v"},
      {"self_attn.o_proj", "attn_output"},
      {"mlp.gate_proj", "ffn_gate"},
      {"mlp.up_proj", "ffn_up"},
      {"mlp.down_proj", "ffn_down"}};
  for (const auto& [from, to] : parts) {
    const size_t at = name.find(from);
    if (at != std::string::npos) name.replace(at, from.size(), to);
  }
  return name;
}

// Returns the rows of a llama's q or k in the order of GGUF files, (pair, half). Transformers has (half,
// pair).
inline std::vector<float> interleaved(const TinyTensor& tensor, int64_t head_dim) {
  const int64_t rows = tensor.shape[0], columns = tensor.shape[1], half = head_dim / 2;
  std::vector<float> values(tensor.values.size());
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t head = row / head_dim, in_head = row % head_dim;
    const int64_t target = head * head_dim + 2 * (in_head % half) + in_head / half;
    std::copy_n(tensor.values.begin() + row * columns, columns, values.begin() + target * columns);
  }
  return values;
}

// Adds the tokenizer of write_tiny_tokenizer().
inline void add_tiny_tokenizer(GgufBytes& file, const std::string& pre) {
  std::string tokens, types;
  for (const std::string& letter : byte_letters()) {
    tokens += gguf_string(letter);
    types += raw<int32_t>(1);
  }
  for (const std::string& token : tiny_special_tokens()) {
    tokens += gguf_string(token);
    types += raw<int32_t>(3);
  }
  const uint64_t count = 256 + tiny_special_tokens().size();
  file.entry("tokenizer.ggml.model", kString, gguf_string("gpt2"));
  file.entry("tokenizer.ggml.pre", kString, gguf_string(pre));
  file.entry("tokenizer.ggml.tokens", kArray, array_of(kString, count, tokens));
  file.entry("tokenizer.ggml.token_type", kArray, array_of(kI32, count, types));
  file.entry("tokenizer.ggml.merges", kArray, array_of(kString, 0, ""));
  file.entry("tokenizer.ggml.bos_token_id", kU32, raw<uint32_t>(257));
  file.entry("tokenizer.ggml.eos_token_id", kU32, raw<uint32_t>(258));
  file.entry("tokenizer.chat_template", kString, gguf_string(tiny_chat_template()));
}

// A tokenizer of GGUF's kind "llama" (SentencePiece).
struct GgufPieces {
  std::vector<std::string> tokens;
  std::vector<float> scores;
  std::vector<int32_t> types;
};

inline void add_pieces(GgufBytes& file, const GgufPieces& pieces) {
  std::string tokens, scores, types;
  for (const std::string& token : pieces.tokens) tokens += gguf_string(token);
  for (const float score : pieces.scores) scores += raw(score);
  for (const int32_t type : pieces.types) types += raw(type);
  const uint64_t count = pieces.tokens.size();
  file.entry("tokenizer.ggml.model", kString, gguf_string("llama"));
  file.entry("tokenizer.ggml.tokens", kArray, array_of(kString, count, tokens));
  file.entry("tokenizer.ggml.scores", kArray, array_of(kF32, count, scores));
  file.entry("tokenizer.ggml.token_type", kArray, array_of(kI32, count, types));
}

// Settings of a GGUF file, which may also be made false.
struct GgufSettings {
  float epsilon = 1e-5f, theta = 10000.0f;
  int64_t kv_heads = 0, hidden = 0, intermediate = 0;  // 0 = those of the model
  std::string scaling;
  float factor = 2.0f;
  const GgufPieces* pieces = nullptr;  // the tokenizer; null = that of write_tiny_tokenizer()
};

// Returns the bytes of a GGUF file with the model that write_tiny_model() writes.
inline std::string tiny_gguf(const TinyModel& tiny, const GgufSettings& settings = {}) {
  GgufBytes file;
  const std::string prefix = tiny.family + ".";
  const auto number = [&](const std::string& key, int64_t value) {
    file.entry(key, kU32, raw(static_cast<uint32_t>(value)));
  };
  file.entry("general.architecture", kString, gguf_string(tiny.family));
  number(prefix + "context_length", 256);
  number(prefix + "embedding_length", settings.hidden > 0 ? settings.hidden : tiny.hidden);
  number(prefix + "block_count", tiny.layers);
  number(prefix + "feed_forward_length",
         settings.intermediate > 0 ? settings.intermediate : tiny.intermediate);
  number(prefix + "attention.head_count", tiny.heads);
  number(prefix + "attention.head_count_kv", settings.kv_heads > 0 ? settings.kv_heads : tiny.kv_heads);
  file.entry(prefix + "attention.layer_norm_rms_epsilon", kF32, raw(settings.epsilon));
  file.entry(prefix + "rope.freq_base", kF32, raw(settings.theta));
  if (!settings.scaling.empty()) {
    file.entry(prefix + "rope.scaling.type", kString, gguf_string(settings.scaling));
    file.entry(prefix + "rope.scaling.factor", kF32, raw(settings.factor));
  }

  if (settings.pieces != nullptr) {
    add_pieces(file, *settings.pieces);
  } else {
    add_tiny_tokenizer(file, tiny.family == "qwen2" ? "qwen2" : "smollm");
  }

  for (const TinyTensor& tensor : tiny_tensors(tiny)) {
    const bool is_rotated = tensor.name.find("q_proj.weight") != std::string::npos ||
                            tensor.name.find("k_proj.weight") != std::string::npos;
    const auto values =
        tiny.family == "llama" && is_rotated ? interleaved(tensor, tiny.head_dim()) : tensor.values;
    const std::vector<int64_t> dims(tensor.shape.rbegin(), tensor.shape.rend());
    file.tensor(gguf_name(tensor.name), dims, 0, file.data.size());
    file.data.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
    file.data.resize((file.data.size() + file.alignment - 1) / file.alignment * file.alignment);
  }
  return file.bytes();
}

}  // namespace tessera::testing
