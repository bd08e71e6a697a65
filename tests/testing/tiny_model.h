// Writes complete model folders of a few thousand weights: config.json, model.safetensors and a tokenizer.
#pragma once

#include <cmath>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "tessera/core/rng.h"
#include "tessera/io/file.h"
#include "tessera/io/safetensors.h"

namespace tessera::testing {

struct TinyModel {
  std::string family = "llama";  // or qwen2, gpt2, mixtral
  int64_t vocab = 264, hidden = 24, layers = 2, heads = 4, kv_heads = 2, intermediate = 40;
  int64_t experts = 5;  // number of experts of mixtral, of which a token takes two
  int64_t head_dim() const { return hidden / heads; }
};

struct TinyTensor {
  std::string name;
  std::vector<int64_t> shape;
  std::vector<float> values;
};

inline void write_text(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

using TinyShapes = std::vector<std::pair<std::string, std::vector<int64_t>>>;

inline TinyShapes tiny_gpt2_shapes(const TinyModel& model) {
  const int64_t hidden = model.hidden, inner = model.intermediate;
  TinyShapes shapes = {{"transformer.wte.weight", {model.vocab, hidden}},
                       {"transformer.wpe.weight", {256, hidden}},
                       {"transformer.ln_f.weight", {hidden}},
                       {"transformer.ln_f.bias", {hidden}}};
  for (int64_t layer = 0; layer < model.layers; ++layer) {
    const std::string prefix = "transformer.h." + std::to_string(layer) + ".";
    for (const char* norm : {"ln_1", "ln_2"}) {
      shapes.push_back({prefix + norm + ".weight", {hidden}});
      shapes.push_back({prefix + norm + ".bias", {hidden}});
    }
    // GPT-2 stores matrices as [in, out].
    const std::pair<const char*, std::vector<int64_t>> matrices[] = {{"attn.c_attn", {hidden, 3 * hidden}},
                                                                     {"attn.c_proj", {hidden, hidden}},
                                                                     {"mlp.c_fc", {hidden, inner}},
                                                                     {"mlp.c_proj", {inner, hidden}}};
    for (const auto& [name, shape] : matrices) {
      shapes.push_back({prefix + name + ".weight", shape});
      shapes.push_back({prefix + name + ".bias", {shape[1]}});
    }
  }
  return shapes;
}

inline TinyShapes tiny_shapes(const TinyModel& model) {
  if (model.family == "gpt2") return tiny_gpt2_shapes(model);
  TinyShapes shapes = {{"model.embed_tokens.weight", {model.vocab, model.hidden}},
                       {"model.norm.weight", {model.hidden}}};
  const int64_t q = model.heads * model.head_dim(), kv = model.kv_heads * model.head_dim();
  for (int64_t layer = 0; layer < model.layers; ++layer) {
    const std::string prefix = "model.layers." + std::to_string(layer) + ".";
    shapes.push_back({prefix + "input_layernorm.weight", {model.hidden}});
    shapes.push_back({prefix + "post_attention_layernorm.weight", {model.hidden}});
    shapes.push_back({prefix + "self_attn.q_proj.weight", {q, model.hidden}});
    shapes.push_back({prefix + "self_attn.k_proj.weight", {kv, model.hidden}});
    shapes.push_back({prefix + "self_attn.v_proj.weight", {kv, model.hidden}});
    shapes.push_back({prefix + "self_attn.o_proj.weight", {model.hidden, q}});
    if (model.family == "mixtral") {
      shapes.push_back({prefix + "block_sparse_moe.gate.weight", {model.experts, model.hidden}});
      for (int64_t e = 0; e < model.experts; ++e) {
        const std::string expert = prefix + "block_sparse_moe.experts." + std::to_string(e) + ".";
        shapes.push_back({expert + "w1.weight", {model.intermediate, model.hidden}});
        shapes.push_back({expert + "w3.weight", {model.intermediate, model.hidden}});
        shapes.push_back({expert + "w2.weight", {model.hidden, model.intermediate}});
      }
      continue;
    }
    shapes.push_back({prefix + "mlp.gate_proj.weight", {model.intermediate, model.hidden}});
    shapes.push_back({prefix + "mlp.up_proj.weight", {model.intermediate, model.hidden}});
    shapes.push_back({prefix + "mlp.down_proj.weight", {model.hidden, model.intermediate}});
    if (model.family != "qwen2") continue;
    shapes.push_back({prefix + "self_attn.q_proj.bias", {q}});
    shapes.push_back({prefix + "self_attn.k_proj.bias", {kv}});
    shapes.push_back({prefix + "self_attn.v_proj.bias", {kv}});
  }
  return shapes;
}

// Returns every tensor of the model under its Hugging Face name, with values that depend on the name alone.
inline std::vector<TinyTensor> tiny_tensors(const TinyModel& model) {
  std::vector<TinyTensor> tensors;
  for (auto& [name, shape] : tiny_shapes(model)) {
    const CounterRng rng(7, stream_of(name.c_str()));
    const bool is_norm = name.find("norm") != std::string::npos || name.find("ln_") != std::string::npos;
    int64_t count = 1;
    for (const int64_t size : shape) count *= size;
    std::vector<float> values(static_cast<size_t>(count));
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = static_cast<float>((is_norm ? 1.0 : 0.0) + 0.2 * rng.normal(i));
    }
    tensors.push_back({name, std::move(shape), std::move(values)});
  }
  return tensors;
}

inline nlohmann::ordered_json tiny_config(const TinyModel& model) {
  if (model.family == "gpt2") {
    return {{"architectures", {"GPT2LMHeadModel"}},
            {"model_type", "gpt2"},
            {"vocab_size", model.vocab},
            {"n_embd", model.hidden},
            {"n_inner", model.intermediate},
            {"n_layer", model.layers},
            {"n_head", model.heads},
            {"n_positions", 256},
            {"activation_function", "gelu_new"},
            {"layer_norm_epsilon", 1e-5},
            {"initializer_range", 0.05},
            {"torch_dtype", "float32"}};
  }
  const char* const architecture = model.family == "qwen2"     ? "Qwen2ForCausalLM"
                                   : model.family == "mixtral" ? "MixtralForCausalLM"
                                                               : "LlamaForCausalLM";
  return {{"architectures", {architecture}},
          {"model_type", model.family},
          {"vocab_size", model.vocab},
          {"hidden_size", model.hidden},
          {"intermediate_size", model.intermediate},
          {"num_hidden_layers", model.layers},
          {"num_attention_heads", model.heads},
          {"num_key_value_heads", model.kv_heads},
          {"hidden_act", "silu"},
          {"max_position_embeddings", 256},
          {"rms_norm_eps", 1e-5},
          {"rope_theta", 10000.0},
          {"tie_word_embeddings", true},
          {"initializer_range", 0.05},
          {"num_local_experts", model.experts},
          {"torch_dtype", "float32"}};
}

// Returns the characters by which byte-level vocabularies stand for the 256 bytes.
inline std::vector<std::string> byte_letters() {
  std::vector<std::string> letters(256);
  int next = 256;
  for (int byte = 0; byte < 256; ++byte) {
    const bool is_plain = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
    const int code = is_plain ? byte : next++;
    std::string text;
    if (code < 128) {
      text = static_cast<char>(code);
    } else {
      text = {static_cast<char>(0xc0 | code >> 6), static_cast<char>(0x80 | (code & 63))};
    }
    letters[static_cast<size_t>(byte)] = text;
  }
  return letters;
}

inline const std::vector<std::string>& tiny_special_tokens() {
  static const std::vector<std::string> tokens = {"<|endoftext|>", "<|im_start|>", "<|im_end|>"};
  return tokens;
}

inline const std::string& tiny_chat_template() {
  static const std::string text =
      "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + "
      "'<|im_end|>' + "
      "'\\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";
  return text;
}

// Writes a tokenizer with one token for each byte (id = byte) and the three special tokens 256, 257 and 258.
inline void write_tiny_tokenizer(const std::string& folder) {
  nlohmann::ordered_json vocab, added = nlohmann::ordered_json::array();
  const std::vector<std::string> letters = byte_letters();
  for (size_t byte = 0; byte < letters.size(); ++byte) vocab[letters[byte]] = byte;
  int64_t id = 256;
  for (const std::string& token : tiny_special_tokens()) {
    vocab[token] = id;
    added.push_back({{"id", id++},
                     {"content", token},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", true}});
  }
  const nlohmann::ordered_json byte_level = {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", true}};
  const nlohmann::ordered_json tokenizer = {
      {"version", "1.0"},
      {"truncation", nullptr},
      {"padding", nullptr},
      {"added_tokens", added},
      {"normalizer", nullptr},
      {"pre_tokenizer", byte_level},
      {"post_processor", nullptr},
      {"decoder", byte_level},
      {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", nlohmann::ordered_json::array()}}}};
  write_text(folder + "/tokenizer.json", tokenizer.dump());
  const nlohmann::ordered_json config = {{"bos_token", "<|im_start|>"},
                                         {"eos_token", "<|im_end|>"},
                                         {"pad_token", "<|im_end|>"},
                                         {"unk_token", "<|endoftext|>"},
                                         {"chat_template", tiny_chat_template()}};
  write_text(folder + "/tokenizer_config.json", config.dump());
}

inline void write_tensors(const std::string& path, const std::vector<TinyTensor>& tensors) {
  std::vector<io::TensorSpec> specs;
  for (const TinyTensor& tensor : tensors) specs.push_back({tensor.name, DType::F32, tensor.shape});
  io::SafetensorsWriter writer(path, specs);
  for (const TinyTensor& tensor : tensors) {
    writer.write(tensor.name, 0, tensor.values.data(),
                 static_cast<int64_t>(tensor.values.size() * sizeof(float)));
  }
  writer.commit();
}

inline void write_tiny_model(const std::string& folder, const TinyModel& model = {}) {
  io::make_directories(folder);
  write_text(folder + "/config.json", tiny_config(model).dump(2));
  write_tiny_tokenizer(folder);
  write_tensors(folder + "/model.safetensors", tiny_tensors(model));
}

// Returns pre-tokenised rows of uneven lengths with uneven numbers of labels, as JSON lines.
inline std::string tiny_rows(int64_t count, int64_t vocab = 256) {
  const CounterRng rng(11, stream_of("rows"));
  std::string text;
  for (int64_t row = 0; row < count; ++row) {
    const auto base = static_cast<uint64_t>(row) * 1000;
    const auto length = static_cast<int64_t>(4 + rng.below(base, 20));
    const auto prompt = static_cast<int64_t>(1 + rng.below(base + 1, static_cast<uint64_t>(length - 2)));
    nlohmann::ordered_json ids = nlohmann::ordered_json::array(), labels = ids, mask = ids;
    for (int64_t i = 0; i < length; ++i) {
      const auto id =
          static_cast<int64_t>(rng.below(base + 2 + static_cast<uint64_t>(i), static_cast<uint64_t>(vocab)));
      ids.push_back(id);
      labels.push_back(i < prompt ? -100 : id);
      mask.push_back(1);
    }
    text +=
        nlohmann::ordered_json({{"input_ids", ids}, {"attention_mask", mask}, {"labels", labels}}).dump() +
        "\n";
  }
  return text;
}

inline std::string tiny_chats(int64_t count) {
  std::string text;
  for (int64_t row = 0; row < count; ++row) {
    const std::string number = std::to_string(row);
    const nlohmann::ordered_json messages = {
        {{"role", "user"}, {"content", "What is " + number + "?"}},
        {{"role", "assistant"}, {"content", "A number: " + number + "."}}};
    text += nlohmann::ordered_json({{"messages", messages}}).dump() + "\n";
  }
  return text;
}

}  // namespace tessera::testing
