#include "tessera/models/write_gguf.h"

#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tessera/io/gguf.h"
#include "tessera/models/common/load.h"
#include "tessera/models/registry.h"

#include "tests/models/reference_models.h"
#include "tests/testing/temp_folder.h"
#include "tests/testing/tiny_model.h"

namespace tessera::models {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class WriteGgufTest : public ::testing::Test {
 protected:
  testing::TempFolder folder_;

  // Makes a folder of a reference model, which has no tokenizer, with one of 50 letters and two special
  // tokens.
  std::string model_of(const std::string& family) const {
    const std::string path = folder_ / family;
    fs::copy(reference_folder(family), path);
    nlohmann::json vocab, added = nlohmann::json::array();
    const std::vector<std::string> letters = testing::byte_letters();
    for (size_t i = 0; i < 50; ++i) vocab[letters[70 + i]] = i;
    vocab["ab"] = 50;
    vocab["abc"] = 51;
    for (const char* token : {"<s>", "</s>"}) {
      added.push_back({{"id", 52 + added.size()}, {"content", token}, {"special", true}});
    }
    const nlohmann::json level = {{"type", "ByteLevel"}, {"add_prefix_space", false}};
    const nlohmann::json tokenizer = {
        {"added_tokens", added},
        {"pre_tokenizer", level},
        {"decoder", level},
        {"normalizer", nullptr},
        {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", {"a b", "ab c"}}}}};
    testing::write_text(path + "/tokenizer.json", tokenizer.dump());
    testing::write_text(path + "/tokenizer_config.json",
                        R"({"bos_token": "<s>", "eos_token": "</s>", "chat_template": "{{ messages }}"})");
    return path;
  }
  std::string write(const std::string& source, const char* mixture) const {
    const std::string path = folder_ / "model.gguf";
    write_gguf(source, *checkpoint::find_gguf_mixture(mixture), path);
    return path;
  }
  static at::Tensor logits(const std::string& path) {
    const BaseModel base = BaseModel::open(path);
    const auto model = build_model(base.config(), at::kFloat);
    load_weights(*model, base.tensors());
    const at::NoGradGuard no_grad;
    return model->logits(pack_ids(at::arange(1, 20, at::kLong)));
  }
  // Calls f(name, the file's values, the source's) for each weight.
  template <class F>
  static void each_weight(const std::string& file, const std::string& source, const F& f) {
    const auto have = BaseModel::open(file).tensors(), want = BaseModel::open(source).tensors();
    ASSERT_EQ(have->tensors().size(), want->tensors().size());
    for (const io::TensorSpec& spec : want->tensors()) {
      const at::Tensor a = at::empty(spec.shape, at::kFloat), b = at::empty(spec.shape, at::kFloat);
      have->read(spec.name, checkpoint::whole_box(spec.shape), a);
      want->read(spec.name, checkpoint::whole_box(spec.shape), b);
      f(spec.name, a, b);
    }
  }
  // Expects that no weight of the file is off by more than this share of its root mean square.
  static void expect_close(const std::string& file, const std::string& source, double share) {
    each_weight(file, source, [&](const std::string& name, const at::Tensor& have, const at::Tensor& want) {
      EXPECT_LE((have - want).norm().item<double>(), share * want.norm().item<double>()) << name;
    });
  }
  // Expects that matrices are rounded to the type, and vectors are not.
  static void expect_rounded(const std::string& file, const std::string& source, at::ScalarType type) {
    each_weight(file, source, [&](const std::string& name, const at::Tensor& have, const at::Tensor& want) {
      EXPECT_TRUE(at::equal(have, want.dim() == 1 ? want : want.to(type).to(at::kFloat))) << name;
    });
  }
  std::string error_of(const std::string& source, const char* mixture = "F32") const {
    try {
      write(source, mixture);
    } catch (const Error& error) {
      EXPECT_FALSE(fs::exists(folder_ / "model.gguf"));
      return error.what();
    }
    return "";
  }
};

TEST_F(WriteGgufTest, TheFileGivesTheLogitsOfTheFolder) {
  for (const char* family :
       {"smollm2", "llama2", "llama3", "llama_linear", "mistral", "qwen2", "qwen2_5", "qwen3"}) {
    SCOPED_TRACE(family);
    const std::string source = model_of(family), file = write(source, "F32");
    const at::Tensor want = logits(source);
    EXPECT_EQ(max_difference(logits(file), want), 0.0);
    expect_rounded(write(source, "F16"), source, at::kHalf);
    expect_rounded(write(source, "BF16"), source, at::kBFloat16);
    write(source, "F32");
    // A file is written from a file too.
    fs::rename(file, folder_ / "source.gguf");
    EXPECT_EQ(max_difference(logits(write(folder_ / "source.gguf", "F32")), logits(folder_ / "source.gguf")),
              0.0);

    const text::Tokenizer tokenizer = BaseModel::tokenizer(file);
    EXPECT_EQ(tokenizer.token_to_id("abc"), 51);
    EXPECT_EQ(tokenizer.eos_id(), 53);
    EXPECT_EQ(tokenizer.chat_template(), "{{ messages }}");
  }
}

TEST_F(WriteGgufTest, MatricesHaveTheTypesOfLlamaQuantize) {
  // The rows of hidden_size divide into blocks, those of the other sizes into small ones or none.
  const testing::TinyModel tiny{.hidden = 256, .layers = 9, .heads = 4, .kv_heads = 2, .intermediate = 320};
  const std::string source = folder_ / "tiny";
  testing::write_tiny_model(source, tiny);
  const auto types = [&](const char* mixture) {
    std::map<std::string, std::string> found;
    const io::GgufFile file = io::GgufFile::open(write(source, mixture));
    for (const io::GgufTensor& tensor : file.tensors()) found[tensor.name] = tensor.type_name();
    return found;
  };
  auto found = types("Q4_K_M");
  EXPECT_EQ(found["token_embd.weight"], "Q6_K");  // the output too
  EXPECT_EQ(found["output_norm.weight"], "F32");
  EXPECT_EQ(found["blk.0.attn_q.weight"], "Q4_K");
  EXPECT_EQ(found["blk.0.attn_v.weight"], "Q6_K");  // of the first eighth
  EXPECT_EQ(found["blk.1.attn_v.weight"], "Q4_K");
  EXPECT_EQ(found["blk.3.attn_v.weight"], "Q6_K");    // of each third layer
  EXPECT_EQ(found["blk.8.attn_v.weight"], "Q6_K");    // of the last eighth
  EXPECT_EQ(found["blk.0.ffn_down.weight"], "Q8_0");  // for Q6_K
  EXPECT_EQ(found["blk.1.ffn_down.weight"], "Q5_0");  // for Q4_K
  expect_close(folder_ / "model.gguf", source, 0.11);
  found = types("q8_0");
  EXPECT_EQ(found["token_embd.weight"], "Q8_0");
  EXPECT_EQ(found["blk.0.ffn_down.weight"], "Q8_0");
  expect_close(folder_ / "model.gguf", source, 0.01);
  found = types("Q4_0");
  expect_close(folder_ / "model.gguf", source, 0.11);
  EXPECT_EQ(found["token_embd.weight"], "Q6_K");
  EXPECT_EQ(found["blk.8.attn_v.weight"], "Q4_0");
  EXPECT_EQ(checkpoint::find_gguf_mixture("q4_k")->file_type, 15u);
  EXPECT_FALSE(checkpoint::find_gguf_mixture("Q4_1"));
  // Rows that no block divides.
  EXPECT_EQ(io::GgufFile::open(write(model_of("qwen2"), "Q8_0")).find("blk.0.attn_q.weight")->type,
            io::GgmlType::F16);
}

TEST_F(WriteGgufTest, WhatFilesCannotSayIsRefused) {
  EXPECT_THAT(error_of(model_of("mixtral")), HasSubstr("need llama, mistral, qwen2, qwen3"));
  EXPECT_THAT(error_of(model_of("llama_yarn")), HasSubstr("need default, linear or llama3"));
  EXPECT_THAT(error_of(model_of("llama_bias")), HasSubstr("mlp.gate_proj.bias"));
  const std::string large = model_of("llama2");
  const auto model = load_reference_model("llama2", at::kFloat);
  model->named_parameters()["model.norm.weight"].detach().fill_(1.0);
  std::vector<testing::TinyTensor> tensors;
  for (const auto& entry : model->named_parameters()) {
    const at::Tensor value = entry.value().detach().contiguous();
    const float* from = value.const_data_ptr<float>();
    tensors.push_back({entry.key(), value.sizes().vec(), {from, from + value.numel()}});
  }
  tensors.front().values[7] = 7e4f;
  testing::write_tensors(large + "/model.safetensors", tensors);
  EXPECT_THAT(error_of(large, "F16"), HasSubstr("too large for the type"));
  EXPECT_EQ(error_of(large, "BF16"), "");
}

TEST(GgufMetadata, Qwen2HeadsMakeUpTheHiddenSize) {
  const auto add = [](const char* head_dim) {
    const auto config =
        parse_model_config(std::string(R"({"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2",
        "vocab_size": 50, "hidden_size": 24, "intermediate_size": 8, "num_hidden_layers": 1,
        "num_attention_heads": 4, "head_dim": )") +
                               head_dim + "}",
                           "config.json");
    io::GgufMetadata metadata;
    (void)find_family("qwen2")->add_gguf_metadata(*config, gguf_architectures().at(1), metadata);
  };
  EXPECT_EQ(gguf_architectures().at(1).name, "qwen2");
  EXPECT_NO_THROW(add("6"));
  EXPECT_THROW(add("8"), Error);
}

TEST_F(WriteGgufTest, AWindowBoundsTheContext) {
  const io::GgufFile file = io::GgufFile::open(write(model_of("mistral_sliding"), "F32"));
  EXPECT_EQ(file.get_uint("llama.context_length"), 5u);
}

}  // namespace
}  // namespace tessera::models
