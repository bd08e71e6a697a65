#include "tessera/checkpoint/gguf_import.h"

#include <filesystem>
#include <fstream>

#include <nlohmann/json.hpp>

#include "tessera/checkpoint/gguf_tensors.h"
#include "tessera/core/strings.h"
#include "tessera/models/common/load.h"
#include "tessera/models/llama/config.h"
#include "tessera/ops/leaf.h"

#include "tests/checkpoint/random_boxes.h"
#include "tests/io/expect_error.h"
#include "tests/io/gguf_builder.h"
#include "tests/models/reference_models.h"
#include "tests/testing/temp_folder.h"

namespace tessera::checkpoint {
namespace {

using testing::expect_error;
using testing::raw;

// Numbers of GGUF's types of values and of tensors.
constexpr uint32_t kUint32 = 4, kFloat32 = 6, kText = 8;
constexpr uint32_t kTensorF32 = 0, kTensorBf16 = 30;

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

std::string gguf_name(const std::string& parameter) {
  if (parameter == "model.embed_tokens.weight") return "token_embd.weight";
  if (parameter == "model.norm.weight") return "output_norm.weight";
  if (parameter == "lm_head.weight") return "output.weight";
  std::string name = replaced(parameter, "model.layers.", "blk.");
  name = replaced(name, "input_layernorm", "attn_norm");
  name = replaced(name, "post_attention_layernorm", "ffn_norm");
  for (const char* part : {"q", "k", "v"}) {
    name = replaced(name, std::string("self_attn.") + part + "_proj", std::string("attn_") + part);
    name = replaced(name, std::string("self_attn.") + part + "_norm", std::string("attn_") + part + "_norm");
  }
  name = replaced(name, "self_attn.o_proj", "attn_output");
  for (const char* part : {"gate", "up", "down"}) {
    name = replaced(name, std::string("mlp.") + part + "_proj", std::string("ffn_") + part);
  }
  return name;
}

// Returns the rows in the order into which llama.cpp's converter puts those of the llama architecture.
at::Tensor interleave(const at::Tensor& value, int64_t heads) {
  std::vector<int64_t> split = {heads, 2, value.size(0) / heads / 2};
  if (value.dim() == 2) split.push_back(value.size(1));
  return value.reshape(split).transpose(1, 2).reshape(value.sizes()).contiguous();
}

// The contents of a GGUF file of a model, which a test may change before it writes them.
struct Source {
  std::string architecture;
  std::map<std::string, uint64_t> sizes;
  std::map<std::string, float> numbers;
  std::map<std::string, std::string> texts;
  std::vector<std::pair<std::string, at::Tensor>> tensors;
  bool has_bf16_matrices = false;

  void write(const std::string& path) const {
    testing::GgufBytes gguf;
    gguf.entry("general.architecture", kText, testing::gguf_string(architecture));
    const std::string prefix = architecture + ".";
    for (const auto& [key, value] : sizes)
      gguf.entry(prefix + key, kUint32, raw(static_cast<uint32_t>(value)));
    for (const auto& [key, value] : numbers) gguf.entry(prefix + key, kFloat32, raw(value));
    for (const auto& [key, value] : texts) gguf.entry(prefix + key, kText, testing::gguf_string(value));
    for (const auto& [name, value] : tensors) {
      gguf.data.resize((gguf.data.size() + 31) / 32 * 32);
      std::vector<int64_t> dims = value.sizes().vec();
      std::reverse(dims.begin(), dims.end());
      const bool is_bf16 = has_bf16_matrices && value.dim() == 2;
      gguf.tensor(name, dims, is_bf16 ? kTensorBf16 : kTensorF32, gguf.data.size());
      const at::Tensor stored = value.to(is_bf16 ? at::kBFloat16 : at::kFloat).contiguous();
      gguf.data.append(static_cast<const char*>(stored.const_data_ptr()), stored.nbytes());
    }
    std::ofstream(path, std::ios::binary) << gguf.bytes();
  }
};

Source source_of(const models::CausalLM& model, const std::string& architecture, float epsilon, float theta) {
  const auto& config = model.config();
  Source source;
  source.architecture = architecture;
  const auto size = [](int64_t value) { return static_cast<uint64_t>(value); };
  source.sizes = {{"block_count", size(config.num_layers)},
                  {"context_length", size(config.max_position_embeddings)},
                  {"embedding_length", size(config.hidden_size)},
                  {"feed_forward_length", size(config.intermediate_size)},
                  {"attention.head_count", size(config.num_heads)},
                  {"attention.head_count_kv", size(config.num_kv_heads)}};
  if (config.head_dim * config.num_heads != config.hidden_size) {
    source.sizes["attention.key_length"] = size(config.head_dim);
  }
  source.numbers = {{"attention.layer_norm_rms_epsilon", epsilon}, {"rope.freq_base", theta}};
  for (const auto& entry : model.named_parameters()) {
    const std::string name = gguf_name(entry.key());
    at::Tensor value = entry.value().detach().to(at::kFloat);
    if (architecture == "llama" && name.find("attn_q.") != std::string::npos)
      value = interleave(value, config.num_heads);
    if (architecture == "llama" && name.find("attn_k.") != std::string::npos)
      value = interleave(value, config.num_kv_heads);
    source.tensors.emplace_back(name, value);
  }
  return source;
}

void import(const Source& source, const testing::TempFolder& folder, DType dtype = DType::F32) {
  source.write(folder / "model.gguf");
  import_gguf(GgufModel(io::GgufFile::open(folder / "model.gguf"), models::gguf_architectures()),
              folder / "out", dtype);
}

// Expects that any box that is read from the file holds the model's values.
void expect_boxes(models::CausalLM& model, const std::string& path) {
  testing::RandomBoxes random;
  const auto files = stored_tensors(
      std::make_shared<const GgufModel>(io::GgufFile::open(path), models::gguf_architectures()));
  for (const auto& entry : model.named_parameters()) {
    const at::Tensor whole = entry.value().detach();
    ASSERT_NE(files->find(entry.key()), nullptr) << entry.key();
    for (int i = 0; i < 5; ++i) {
      const parallel::Box box = i == 0 ? whole_box(whole.sizes().vec()) : random.box(whole.sizes().vec());
      const at::ScalarType type = i % 2 == 0 ? at::kFloat : at::kBFloat16;
      const at::Tensor got = at::full(box.size, 7, type),
                       turned = at::full(box.size, 7, type).t().contiguous().t();
      files->read(entry.key(), box, got);
      files->read(entry.key(), box, turned);
      const at::Tensor want = parallel::box_part(whole, box).to(type);
      EXPECT_TRUE(at::equal(got, want) && at::equal(turned, want)) << entry.key();
    }
  }
}

// Expects that the folder which import makes holds the model bit by bit, and computes the same logits.
void expect_round_trip(models::CausalLM& model, const Source& source) {
  const testing::TempFolder folder;
  import(source, folder);
  expect_boxes(model, folder / "model.gguf");
  const auto parameters = model.named_parameters();
  const models::TensorFile weights(folder / "out/model.safetensors");
  int64_t total = 0;
  for (const auto& entry : parameters) {
    const at::Tensor stored = weights.get(entry.key());
    EXPECT_EQ(stored.scalar_type(), at::kFloat);
    EXPECT_TRUE(at::equal(stored, entry.value().detach().to(at::kFloat))) << entry.key();
    total += static_cast<int64_t>(stored.nbytes());
  }
  EXPECT_EQ(
      gguf_import_bytes(GgufModel(io::GgufFile::open(folder / "model.gguf"), models::gguf_architectures()),
                        DType::F32),
      total);

  const at::NoGradGuard no_grad;
  const auto imported = models::build_model(folder / "out", at::kFloat);
  models::load_weights(*imported, io::ModelFiles::open(folder / "out"));
  const auto batch = models::pack_ids(at::arange(1, 20, at::kLong));
  EXPECT_EQ(models::max_difference(imported->logits(batch), model.logits(batch)), 0.0);
}

struct Family {
  const char* name;
  const char* architecture;
  float epsilon, theta;
};

Source reference_source(const Family& family, std::shared_ptr<models::CausalLM>* model) {
  *model = models::load_reference_model(family.name, at::kFloat);
  return source_of(**model, family.architecture, family.epsilon, family.theta);
}

nlohmann::json reference_config(const char* family) {
  std::ifstream file(models::reference_folder(family) + "/config.json");
  return nlohmann::json::parse(file);
}

TEST(GgufImport, LlamaRowsComeBackIntoHuggingFaceOrder) {
  for (const char* family : {"smollm2", "llama2"}) {
    SCOPED_TRACE(family);
    const auto config = reference_config(family);
    std::shared_ptr<models::CausalLM> model;
    const Source source = reference_source(
        {family, "llama", config.at("rms_norm_eps").get<float>(), config.value("rope_theta", 10000.0F)},
        &model);
    expect_round_trip(*model, source);
  }
}

// The table of leaves expands blocks, as on a GPU.
TEST(GgufImport, BlocksAreExpandedWhereTheWeightsLie) {
  static int calls;
  calls = 0;
  ops::Leaves table = ops::host_leaves();
  table.expand_ggml = [](const at::Tensor& to, const at::Tensor& blocks, int64_t num_blocks, uint32_t type) {
    ++calls;
    ASSERT_EQ(type, kTensorBf16);
    ASSERT_EQ(to.numel(), num_blocks);
    ASSERT_EQ(blocks.numel(), 2 * num_blocks);
    to.copy_(blocks.view(at::kBFloat16).view(to.sizes()));
  };
  const auto config = reference_config("smollm2");
  std::shared_ptr<models::CausalLM> model;
  Source source = reference_source(
      {"smollm2", "llama", config.at("rms_norm_eps").get<float>(), config.at("rope_theta").get<float>()},
      &model);
  source.has_bf16_matrices = true;
  {
    const at::NoGradGuard no_grad;
    for (const at::Tensor& value : model->parameters()) {
      if (value.dim() == 2) value.copy_(value.to(at::kBFloat16));
    }
  }
  const testing::TempFolder folder;
  source.write(folder / "model.gguf");
  const ops::LeavesScope scope(&table);
  expect_boxes(*model, folder / "model.gguf");
  EXPECT_GT(calls, 0);
}

TEST(GgufImport, QwenRowsStayWhereTheyAre) {
  for (const char* family : {"qwen2", "qwen3"}) {
    SCOPED_TRACE(family);
    const auto config = reference_config(family);
    std::shared_ptr<models::CausalLM> model;
    const Source source = reference_source(
        {family, family, config.at("rms_norm_eps").get<float>(), config.at("rope_theta").get<float>()},
        &model);
    expect_round_trip(*model, source);
  }
}

// Makes a Llama with biases: those of q and k are interleaved as the rows are.
std::shared_ptr<models::CausalLM> llama_with_biases() {
  models::LlamaConfig config;
  config.model_type = "llama";
  config.vocab_size = 31;
  config.hidden_size = 24;
  config.intermediate_size = 10;
  config.num_layers = 2;
  config.num_heads = 4;
  config.num_kv_heads = 2;
  config.head_dim = 6;
  config.max_position_embeddings = 64;
  config.rms_norm_eps = 1e-5;
  config.qkv_bias = config.output_bias = true;
  config.rope.head_dim = 6;
  config.initializer_range = 0.3;
  const auto model = models::build_model(config, at::kFloat);
  models::load_weights(*model, *models::random_source(*model, 3));
  for (const auto& entry : model->named_parameters()) {
    if (entry.key().find(".bias") != std::string::npos) {
      entry.value().detach().copy_(at::arange(entry.value().numel(), at::kFloat).mul_(0.01).add_(0.1));
    }
  }
  return model;
}

TEST(GgufImport, LlamaBiasesAreInterleavedToo) {
  const auto model = llama_with_biases();
  expect_round_trip(*model, source_of(*model, "llama", 1e-5F, 10000.0F));
}

TEST(GgufImport, LinearRopeScalingIsKept) {
  const auto config = reference_config("llama_linear");
  std::shared_ptr<models::CausalLM> model;
  Source source = reference_source(
      {"llama_linear", "llama", config.at("rms_norm_eps").get<float>(), config.value("rope_theta", 10000.0F)},
      &model);
  source.texts["rope.scaling.type"] = "linear";
  source.numbers["rope.scaling.factor"] = config.at("rope_scaling").at("factor").get<float>();
  expect_round_trip(*model, source);
}

TEST(GgufImport, NarrowTypesRound) {
  std::shared_ptr<models::CausalLM> model;
  const Source source = reference_source({"smollm2", "llama", 1e-5F, 100000.0F}, &model);
  for (const auto& [dtype, type] :
       {std::pair(DType::BF16, at::kBFloat16), std::pair(DType::F16, at::kHalf)}) {
    const testing::TempFolder folder;
    import(source, folder, dtype);
    const models::TensorFile weights(folder / "out/model.safetensors");
    for (const auto& entry : model->named_parameters()) {
      EXPECT_TRUE(at::equal(weights.get(entry.key()), entry.value().detach().to(type))) << entry.key();
    }
  }
}

class GgufImportErrors : public ::testing::Test {
  std::shared_ptr<models::CausalLM> model_;  // declared before source_, whose initializer fills it

 protected:
  Source source_ = reference_source({"smollm2", "llama", 1e-5F, 100000.0F}, &model_);

  void expect_refused(const std::vector<std::string>& parts) {
    const testing::TempFolder folder;
    expect_error(ErrorKind::Model, parts, [&] { import(source_, folder); });
    EXPECT_FALSE(std::filesystem::exists(folder / "out"))
        << "nothing may be written before the file is known good";
  }
  at::Tensor& tensor(const std::string& name) {
    for (auto& [key, value] : source_.tensors) {
      if (key == name) return value;
    }
    throw std::runtime_error("no tensor " + name);
  }
};

TEST_F(GgufImportErrors, UnknownArchitecture) {
  source_.architecture = "mamba";
  expect_refused({"general.architecture", "mamba", "llama, qwen2, qwen3"});
}

TEST_F(GgufImportErrors, UnknownTensor) {
  source_.tensors.emplace_back("blk.0.ssm_a", at::ones({4}));
  expect_refused({"blk.0.ssm_a"});
}

TEST_F(GgufImportErrors, PartialRotary) {
  source_.sizes["rope.dimension_count"] = 2;
  expect_refused({"llama.rope.dimension_count", "got 2"});
}

TEST_F(GgufImportErrors, RopeFactors) {
  source_.tensors.emplace_back("rope_freqs.weight", at::tensor({1.0, 3.0, 2.0, 5.0}));
  expect_refused({"rope_freqs.weight", "no scaling of rotary positions"});
  source_.architecture = "qwen2";
  expect_refused({"rope_freqs.weight", "no model of this architecture"});
}

TEST_F(GgufImportErrors, MissingKeys) {
  for (const char* key :
       {"block_count", "context_length", "embedding_length", "feed_forward_length", "attention.head_count"}) {
    SCOPED_TRACE(key);
    const uint64_t value = source_.sizes.at(key);
    source_.sizes.erase(key);
    expect_refused({std::string("llama.") + key});
    source_.sizes[key] = 0;
    expect_refused({std::string("llama.") + key});
    source_.sizes[key] = value;
  }
  source_.numbers.erase("attention.layer_norm_rms_epsilon");
  expect_refused({"llama.attention.layer_norm_rms_epsilon"});
}

TEST_F(GgufImportErrors, UnknownRopeScaling) {
  source_.texts["rope.scaling.type"] = "yarn";
  expect_refused({"llama.rope.scaling.type", "yarn"});
}

TEST_F(GgufImportErrors, NoEmbeddings) {
  source_.tensors.erase(source_.tensors.begin());
  expect_refused({"token_embd.weight"});
}

TEST_F(GgufImportErrors, HeadsThatDoNotDivide) {
  source_.sizes["attention.head_count"] = 100000;
  expect_refused({"head"});
  source_.sizes["attention.head_count"] = 7;
  expect_refused({"head"});
}

TEST_F(GgufImportErrors, TensorsThatAreNoMatrix) {
  for (const std::vector<int64_t>& shape : {std::vector<int64_t>{}, std::vector<int64_t>{6, 3, 2}}) {
    tensor("blk.0.attn_q.weight") = at::ones(shape);
    expect_refused({"blk.0.attn_q.weight", "dims"});
  }
}

TEST_F(GgufImportErrors, MissingAndSurplusTensors) {
  at::Tensor value = tensor("blk.1.ffn_up.weight");
  std::erase_if(source_.tensors, [](const auto& entry) { return entry.first == "blk.1.ffn_up.weight"; });
  expect_refused({"blk.1.ffn_up.weight"});
  source_.tensors.emplace_back("blk.1.ffn_up.weight", value);
  source_.tensors.emplace_back("blk.99.ffn_up.weight", value);
  expect_refused({"blk.99.ffn_up.weight"});
}

}  // namespace
}  // namespace tessera::checkpoint
