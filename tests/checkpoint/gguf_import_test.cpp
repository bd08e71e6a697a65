#include "tessera/checkpoint/gguf_import.h"

#include <filesystem>
#include <fstream>

#include <nlohmann/json.hpp>

#include "tessera/checkpoint/gguf_tensors.h"
#include "tessera/checkpoint/llama3_rope.h"
#include "tessera/core/strings.h"
#include "tessera/models/common/load.h"
#include "tessera/models/llama/config.h"
#include "tessera/ops/leaf.h"

#include "tests/checkpoint/random_boxes.h"
#include "tests/io/expect_error.h"
#include "tests/io/gguf_builder.h"
#include "tests/models/reference_models.h"
#include "tests/testing/random.h"
#include "tests/testing/temp_folder.h"

namespace tessera::checkpoint {
namespace {

using testing::expect_error;
using testing::raw;

// Numbers of GGUF's types of values and of tensors.
constexpr uint32_t kUint16 = 2, kUint32 = 4, kInt32 = 5, kFloat32 = 6, kText = 8, kFloat64 = 12;
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
  std::map<std::string, double> doubles;
  std::map<std::string, std::string> texts;
  std::vector<std::pair<std::string, at::Tensor>> tensors;
  bool has_bf16_matrices = false;

  void add_metadata(testing::GgufBytes& gguf) const {
    gguf.entry("general.architecture", kText, testing::gguf_string(architecture));
    const std::string prefix = architecture + ".";
    for (const auto& [key, value] : sizes)
      gguf.entry(prefix + key, kUint32, raw(static_cast<uint32_t>(value)));
    for (const auto& [key, value] : numbers) gguf.entry(prefix + key, kFloat32, raw(value));
    for (const auto& [key, value] : doubles) gguf.entry(prefix + key, kFloat64, raw(value));
    for (const auto& [key, value] : texts) gguf.entry(prefix + key, kText, testing::gguf_string(value));
  }

  // Adds the tensors [first, end).
  void add_tensors(testing::GgufBytes& gguf, size_t first, size_t end) const {
    for (size_t i = first; i < end; ++i) {
      const auto& [name, value] = tensors[i];
      gguf.data.resize((gguf.data.size() + 31) / 32 * 32);
      std::vector<int64_t> dims = value.sizes().vec();
      std::reverse(dims.begin(), dims.end());
      const bool is_bf16 = has_bf16_matrices && value.dim() == 2;
      gguf.tensor(name, dims, is_bf16 ? kTensorBf16 : kTensorF32, gguf.data.size());
      const at::Tensor stored = value.to(is_bf16 ? at::kBFloat16 : at::kFloat).contiguous();
      gguf.data.append(static_cast<const char*>(stored.const_data_ptr()), stored.nbytes());
    }
  }

  void write(const std::string& path) const {
    testing::GgufBytes gguf;
    add_metadata(gguf);
    add_tensors(gguf, 0, tensors.size());
    std::ofstream(path, std::ios::binary) << gguf.bytes();
  }

  // Writes the files that `gguf-split` makes: the first has the metadata, and no tensor if the others have
  // all.
  void write_parts(const std::string& stem, size_t count, bool first_has_tensors = true) const {
    const size_t holders = first_has_tensors ? count : count - 1;
    for (size_t part = 0; part < count; ++part) {
      testing::GgufBytes gguf;
      if (part == 0) add_metadata(gguf);
      gguf.entry("split.no", kUint16, raw(static_cast<uint16_t>(part)));
      gguf.entry("split.count", kUint16, raw(static_cast<uint16_t>(count)));
      gguf.entry("split.tensors.count", kInt32, raw(static_cast<int32_t>(tensors.size())));
      if (first_has_tensors || part > 0) {
        const size_t holder = first_has_tensors ? part : part - 1;
        add_tensors(gguf, tensors.size() * holder / holders, tensors.size() * (holder + 1) / holders);
      }
      std::ofstream(part_path(stem, part, count), std::ios::binary) << gguf.bytes();
    }
  }
  static std::string part_path(const std::string& stem, size_t part, size_t count) {
    return stem + "-0000" + std::to_string(part + 1) + "-of-0000" + std::to_string(count) + ".gguf";
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

// A model whose head is its own tensor, which the last part holds: without that part it would look tied.
TEST(GgufImport, AllPartsAreReadFromAnyOfThem) {
  std::shared_ptr<models::CausalLM> model;
  const Source source = reference_source({"llama_yarn", "llama", 1e-6F, 10000.0F}, &model);
  for (const bool first_has_tensors : {true, false}) {
    const testing::TempFolder folder;
    source.write_parts(folder / "m", 3, first_has_tensors);
    for (size_t part = 0; part < 3; ++part) expect_boxes(*model, Source::part_path(folder / "m", part, 3));
  }
}

TEST(GgufImport, PartsThatDoNotBelongTogether) {
  std::shared_ptr<models::CausalLM> model;
  Source source = reference_source({"smollm2", "llama", 1e-5F, 100000.0F}, &model);
  const testing::TempFolder folder;
  const std::string one = Source::part_path(folder / "m", 0, 3), two = Source::part_path(folder / "m", 1, 3),
                    three = Source::part_path(folder / "m", 2, 3);
  const auto expect_refused = [&](const std::string& path, const std::vector<std::string>& parts) {
    expect_error(ErrorKind::Model, parts, [&] { io::GgufFile::open(path); });
  };
  source.write_parts(folder / "m", 3);
  std::filesystem::rename(two, folder / "away");
  expect_refused(one, {"GGUF-PARTS", two, "part 2 of 3 of the model is missing"});
  expect_refused(three, {two, "missing"});
  std::filesystem::copy(three, two);
  expect_refused(one, {two, "got part 3 of 3, need part 2 of 3"});
  std::filesystem::rename(folder / "away", two);
  std::filesystem::copy(two, folder / "renamed.gguf");
  expect_refused(folder / "renamed.gguf", {"renamed.gguf", "got part 2 of 3", "-00002-of-00003.gguf"});

  source.tensors.pop_back();
  const testing::TempFolder other;
  source.write_parts(other / "m", 3);
  std::filesystem::copy(Source::part_path(other / "m", 0, 3), one,
                        std::filesystem::copy_options::overwrite_existing);
  expect_refused(two, {"split.tensors.count", "do not contain all tensors",
                       "need " + std::to_string(source.tensors.size())});
  std::filesystem::copy(Source::part_path(other / "m", 1, 3), three,
                        std::filesystem::copy_options::overwrite_existing);
  expect_refused(one, {three, "got part 2 of 3"});
}

// Returns the numbers by which llama.cpp's converter divides the frequencies, computed in float32 as there.
at::Tensor llama3_factors(const Llama3Rope& rule, double theta, int64_t head_dim) {
  const at::Tensor frequencies =
      1.0 / at::pow(theta, at::arange(0, head_dim, 2, at::kFloat) / static_cast<double>(head_dim));
  at::Tensor factors = at::empty({head_dim / 2}, at::kFloat);
  const auto length = static_cast<float>(rule.original_length);
  const auto factor = static_cast<float>(rule.factor), low = static_cast<float>(rule.low_freq_factor),
             high = static_cast<float>(rule.high_freq_factor);
  for (int64_t i = 0; i < head_dim / 2; ++i) {
    const float wave = 2.0F * static_cast<float>(M_PI) / frequencies[i].item<float>();
    const float smooth = (length / wave - low) / (high - low);
    factors[i] = wave < length / high  ? 1.0F
                 : wave > length / low ? factor
                                       : 1.0F / ((1.0F - smooth) / factor + smooth);
  }
  return factors;
}

TEST(GgufImport, LlamaThreesRopeFactorsAreItsRule) {
  std::shared_ptr<models::CausalLM> model;
  Source source = reference_source({"llama3", "llama", 1e-5F, 500.0F}, &model);
  const at::Tensor factors =
      llama3_factors({.factor = 8.0, .original_length = 64}, 500.0, model->config().head_dim);
  source.tensors.emplace_back("rope_freqs.weight", factors);
  expect_round_trip(*model, source);
  const testing::TempFolder folder;
  import(source, folder);
  std::ifstream file(folder / "out/config.json");
  EXPECT_EQ(nlohmann::json::parse(file).at("rope_scaling"), reference_config("llama3").at("rope_scaling"));
}

// The factors of the published models give their published rules, and those of any other rule one that gives
// the same factors.
TEST(GgufImport, RopeRulesAreFound) {
  for (const auto& [factor, head_dim] : {std::pair(8.0, 128), std::pair(32.0, 64), std::pair(32.0, 128)}) {
    const at::Tensor factors = llama3_factors({.factor = factor}, 500000.0, head_dim);
    const auto rule = fit_llama3_rope({factors.const_data_ptr<float>(), size_t(head_dim) / 2}, 500000.0);
    ASSERT_TRUE(rule.has_value());
    EXPECT_EQ(rule->factor, factor);
    EXPECT_EQ(rule->low_freq_factor, 1.0);
    EXPECT_EQ(rule->high_freq_factor, 4.0);
    EXPECT_EQ(rule->original_length, 8192);
    const std::vector<float> divisors = llama3_divisors(*rule, 500000.0, head_dim);
    EXPECT_TRUE(at::allclose(at::tensor(divisors), factors, 1e-4, 0.0));
  }
  testing::Random random;
  const auto uniform = [&](double low, double high) {
    return std::uniform_real_distribution<double>(low, high)(random.engine());
  };
  for (int i = 0; i < 200; ++i) {
    const double theta = std::pow(10.0, uniform(2.5, 6.0));
    const int64_t head_dim = 2 * random.in(2, 64);
    Llama3Rope made{.factor = uniform(1.5, 40.0),
                    .low_freq_factor = uniform(0.5, 2.0),
                    .original_length = random.in(40, 20000)};
    made.high_freq_factor = made.low_freq_factor * uniform(1.5, 8.0);
    const double last = 2.0 * M_PI * std::pow(theta, 1.0 - 2.0 / static_cast<double>(head_dim));
    if (last < static_cast<double>(made.original_length) / made.low_freq_factor) continue;
    const at::Tensor factors = llama3_factors(made, theta, head_dim);
    const auto rule = fit_llama3_rope({factors.const_data_ptr<float>(), size_t(head_dim) / 2}, theta);
    ASSERT_TRUE(rule.has_value()) << factors;
    for (int64_t k = 0; k < head_dim / 2; ++k) {
      const double frequency = std::pow(theta, -2.0 * static_cast<double>(k) / static_cast<double>(head_dim));
      const double want = factors[k].item<double>();
      EXPECT_NEAR(llama3_divisor(*rule, frequency), want, 3e-4 * want);
    }
  }
}

TEST(GgufImport, YarnIsRead) {
  std::shared_ptr<models::CausalLM> model;
  Source source = reference_source({"llama_yarn", "llama", 1e-6F, 10000.0F}, &model);
  source.texts["rope.scaling.type"] = "yarn";
  source.sizes["rope.scaling.original_context_length"] = 16;
  source.numbers["rope.scaling.factor"] = 4.0F;
  source.numbers["rope.scaling.yarn_beta_fast"] = 4.0F;
  source.numbers["rope.scaling.yarn_beta_slow"] = 1.0F;
  expect_round_trip(*model, source);
}

// Old files have the factor of a linear scaling under another key, and files without a type have a linear
// one.
TEST(GgufImport, FactorsWithoutATypeAreLinear) {
  const auto config = reference_config("llama_linear");
  for (const char* key : {"rope.scaling.factor", "rope.scale_linear"}) {
    std::shared_ptr<models::CausalLM> model;
    Source source = reference_source({"llama_linear", "llama", config.at("rms_norm_eps").get<float>(),
                                      config.value("rope_theta", 10000.0F)},
                                     &model);
    source.numbers[key] = config.at("rope_scaling").at("factor").get<float>();
    expect_round_trip(*model, source);
  }
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
  const auto config = reference_config("smollm2");
  const int64_t head_dim =
      config.at("hidden_size").get<int64_t>() / config.at("num_attention_heads").get<int64_t>();
  source_.tensors.emplace_back("rope_freqs.weight", at::ones({head_dim}));
  expect_refused({"rope_freqs.weight", "one factor for each", "got [" + std::to_string(head_dim) + "]"});
  source_.tensors.back().second = at::arange(head_dim / 2).remainder(2).add(1.5);
  expect_refused({"rope_freqs.weight", "follow no known rule", "1.5"});
  source_.texts["rope.scaling.type"] = "linear";
  source_.numbers["rope.scaling.factor"] = 2.0F;
  expect_refused({"rope_freqs.weight", "two scalings", "llama.rope.scaling.type linear"});
}

TEST_F(GgufImportErrors, NumbersBeyondFloat32) {
  source_.numbers.erase("rope.freq_base");
  for (const auto& [value, shown] : {std::pair(1e300, "1e+300"), std::pair(1e-60, "1e-60")}) {
    source_.doubles["rope.freq_base"] = value;
    expect_refused({"llama.rope.freq_base", "float32", shown});
  }
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
  source_.texts["rope.scaling.type"] = "longrope";
  expect_refused({"llama.rope.scaling.type", "longrope"});
  source_.texts["rope.scaling.type"] = "yarn";
  expect_refused({"llama.rope.scaling.factor"});
  source_.numbers["rope.scaling.factor"] = 2.0F;
  source_.numbers["rope.scaling.yarn_log_multiplier"] = 0.1F;
  expect_refused({"llama.rope.scaling.yarn_log_multiplier", "0.1"});
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
