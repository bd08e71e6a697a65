#include "tessera/models/common/load.h"

#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/core/error.h"
#include "tessera/io/file.h"
#include "tessera/models/common/base_model.h"
#include "tessera/models/common/pipeline.h"

#include "tests/models/reference_models.h"
#include "tests/testing/temp_folder.h"

namespace tessera::models {
namespace {

using tessera::testing::TempFolder;
using ::testing::AllOf;
using ::testing::HasSubstr;

using Tensors = std::map<std::string, at::Tensor>;

void save(const std::string& path, const Tensors& tensors) {
  std::vector<io::TensorSpec> specs;
  for (const auto& [name, value] : tensors) {
    specs.push_back({name, to_dtype(value.scalar_type()), value.sizes().vec()});
  }
  io::SafetensorsWriter writer(path, specs);
  for (const auto& [name, value] : tensors) {
    writer.write(name, 0, value.const_data_ptr(), static_cast<int64_t>(value.nbytes()));
  }
  writer.commit();
}

// Returns the stored tensors of a reference model.
Tensors tensors_of(const std::string& family) {
  const TensorFile file(reference_folder(family) + "/model.safetensors");
  Tensors tensors;
  const io::ModelFiles files = io::ModelFiles::open(reference_folder(family));
  for (const io::TensorInfo* info : files.tensors()) tensors[info->name] = file.get(info->name);
  return tensors;
}

// Returns the error of loading `tensors` into a model of the family, or "".
std::string error_of(const std::string& family, const Tensors& tensors) {
  TempFolder folder;
  save(folder / "model.safetensors", tensors);
  const auto model = build_model(reference_folder(family), at::kFloat);
  try {
    load_weights(*model, io::ModelFiles::open(folder.path()));
    return "";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::Model);
    return error.what();
  }
}

TEST(Load, ReportsMissingUnknownAndMisshapenTensors) {
  Tensors tensors = tensors_of("smollm2");
  ASSERT_EQ(error_of("smollm2", tensors), "");
  tensors.erase("model.norm.weight");
  tensors["model.layers.0.self_attn.k_proj.weight"] = at::zeros({4, 54});
  tensors["model.layers.2.mlp.up_proj.weight"] = at::zeros({2, 2});
  tensors["model.layers.1.input_layernorm.weight"] = at::zeros({54}, at::kInt);
  const std::string text = error_of("smollm2", tensors);
  EXPECT_THAT(text, HasSubstr("1 missing: model.norm.weight"));
  EXPECT_THAT(text, HasSubstr("model.layers.0.self_attn.k_proj.weight (got [4, 54], need [18, 54])"));
  EXPECT_THAT(text, HasSubstr("1 that the model does not have: model.layers.2.mlp.up_proj.weight"));
  EXPECT_THAT(text, HasSubstr("model.layers.1.input_layernorm.weight (I32)"));
}

TEST(Load, KeepsStoredBfloat16WithoutChangingTheNumbers) {
  const auto files = io::ModelFiles::open(reference_folder("mistral"));
  const auto wide = load_reference_model("mistral", at::kFloat);
  const auto narrow = build_model(reference_folder("mistral"), at::kFloat);
  load_weights(*narrow, files, true);
  const auto parameters = narrow->named_parameters();
  EXPECT_EQ(parameters["model.layers.0.mlp.up_proj.weight"].scalar_type(), at::kBFloat16);
  EXPECT_EQ(parameters["model.norm.weight"].scalar_type(), at::kFloat);
  EXPECT_EQ(narrow->hidden_type(), at::kFloat);
  EXPECT_EQ(narrow->cache_options().dtype, at::kFloat);
  EXPECT_FALSE(parameters["model.norm.weight"].requires_grad());
  // Up to 16 tokens take the kernel for few rows; more take a matrix product.
  std::vector<int64_t> ids;
  for (int64_t i = 0; i < 40; ++i) ids.push_back((7 * i + 3) % wide->config().vocab_size);
  for (const size_t count : {5u, 40u}) {
    const auto batch =
        pack_ids(at::tensor(std::vector<int64_t>(ids.begin(), ids.begin() + count), at::kLong));
    const at::Tensor got = narrow->logits(batch), want = wide->logits(batch);
    EXPECT_EQ(got.scalar_type(), at::kFloat);
    EXPECT_LT(max_difference(got, want), 1e-5);
  }
  const auto bf16 = build_model(reference_folder("mistral"), at::kBFloat16);
  load_weights(*bf16, files, true);
  EXPECT_EQ(bf16->hidden_type(), at::kBFloat16);
  EXPECT_TRUE(bf16->named_parameters()["model.norm.weight"].requires_grad());
}

TEST(Load, ListsAtMostTwentyNames) {
  Tensors tensors = tensors_of("smollm2");
  for (int i = 0; i < 30; ++i) tensors["extra." + std::to_string(100 + i)] = at::zeros({1});
  const std::string text = error_of("smollm2", tensors);
  EXPECT_THAT(text, HasSubstr("30 that the model does not have"));
  EXPECT_THAT(text, HasSubstr("extra.119, ..."));
  EXPECT_THAT(text, ::testing::Not(HasSubstr("extra.120")));
}

TEST(Load, AcceptsATiedHeadAndOldBuffers) {
  Tensors tensors = tensors_of("smollm2");
  tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"];
  tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = at::zeros({3});
  EXPECT_EQ(error_of("smollm2", tensors), "");
  // The embedding may be stored under the head's name alone.
  tensors.erase("model.embed_tokens.weight");
  EXPECT_EQ(error_of("smollm2", tensors), "");
}

// Writes the files of a reference model with other tensors.
void write_folder(const std::string& folder, const std::string& family, const Tensors& tensors) {
  io::write_file_atomic(folder + "/config.json",
                        io::read_file(reference_folder(family) + "/config.json", 1 << 20));
  save(folder + "/model.safetensors", tensors);
}

// Transformers keeps a head apart that the file has with other values than the embedding's, whatever
// tie_word_embeddings says, and so does every way to open a model.
TEST(Load, AHeadThatDiffersFromTheEmbeddingIsNotTied) {
  for (const auto& [family, embedding] :
       {std::pair("smollm2", "model.embed_tokens.weight"), std::pair("qwen3", "model.embed_tokens.weight"),
        std::pair("gpt2", "transformer.wte.weight")}) {
    SCOPED_TRACE(family);
    const TempFolder folder;
    Tensors tensors = tensors_of(family);
    tensors["lm_head.weight"] = tensors.at(embedding).clone();
    write_folder(folder.path(), family, tensors);
    EXPECT_TRUE(BaseModel::open(folder.path()).config().tie_word_embeddings);
    // Other bits in another type are equal values all the same.
    tensors["lm_head.weight"] = tensors.at(embedding).to(at::kDouble);
    write_folder(folder.path(), family, tensors);
    EXPECT_TRUE(BaseModel::open(folder.path()).config().tie_word_embeddings);

    tensors["lm_head.weight"] = tensors.at(embedding).clone();
    tensors["lm_head.weight"].view({-1})[-1] += 1.0;
    write_folder(folder.path(), family, tensors);
    EXPECT_THAT(error_of(family, tensors),
                AllOf(HasSubstr("'lm_head.weight' differs"), HasSubstr(embedding)));
    ::testing::internal::CaptureStderr();
    const BaseModel base = BaseModel::open(folder.path());
    EXPECT_THAT(::testing::internal::GetCapturedStderr(),
                AllOf(HasSubstr("'lm_head.weight' differs"), HasSubstr(embedding)));
    EXPECT_FALSE(base.config().tie_word_embeddings);
    EXPECT_THAT(base.files().config, HasSubstr("\"tie_word_embeddings\": false"));
    const auto model = build_model(base.config(), at::kFloat),
               tied = load_reference_model(family, at::kFloat);
    load_weights(*model, base.tensors());
    const auto batch = pack_ids(at::arange(1, 20, at::kLong));
    const at::Tensor got = model->logits(batch), want = tied->logits(batch);
    const int64_t last = got.size(1) - 1;
    EXPECT_TRUE(at::equal(got.narrow(1, 0, last), want.narrow(1, 0, last)));
    EXPECT_GT(max_difference(got, want), 1e-3);
  }
}

// Files of a model that was saved without its head lack the first part of all names.
TEST(Load, AModelWithoutItsHeadLoads) {
  for (const char* family : {"smollm2", "qwen2", "qwen3", "gpt2", "llama_linear", "mixtral"}) {
    SCOPED_TRACE(family);
    const TempFolder folder;
    Tensors bare;
    for (const auto& [name, value] : tensors_of(family)) {
      if (name != "lm_head.weight") bare[name.substr(name.find('.') + 1)] = value;
    }
    const auto whole = load_reference_model(family, at::kFloat);
    if (!whole->config().tie_word_embeddings) {
      EXPECT_THAT(error_of(family, bare), AllOf(HasSubstr("1 missing: lm_head.weight"),
                                                HasSubstr("the model was saved without its output head")));
      continue;
    }
    write_folder(folder.path(), family, bare);
    const BaseModel base = BaseModel::open(folder.path());
    const auto model = build_model(base.config(), at::kFloat);
    load_weights(*model, base.tensors());
    const auto batch = pack_ids(at::arange(1, 20, at::kLong));
    EXPECT_TRUE(at::equal(model->logits(batch), whole->logits(batch)));
  }
}

TEST(Load, QuantisedWeightsStandAsInTheModelsPlainFiles) {
  const TempFolder folder;
  const auto open = [&](const std::string& family, const Tensors& tensors, const std::string& quantization) {
    write_folder(folder.path(), family, tensors);
    std::string config = io::read_file(folder / "config.json", 1 << 20);
    config.insert(config.find('{') + 1, "\"quantization_config\": " + quantization + ",");
    io::write_file_atomic(folder / "config.json", config);
    const BaseModel base = BaseModel::open(folder.path());
    check_tensors(*build_model(base.config(), at::kFloat), *base.tensors());
    return folder_tensors(folder.path());
  };
  // GPT-2's plain files hold [in, out]; bitsandbytes writes [out, in].
  Tensors gpt2 = tensors_of("gpt2");
  const at::Tensor codes = at::randint(-127, 128, {60, 15}, at::kChar), scales = at::rand({60});
  gpt2["transformer.h.0.mlp.c_fc.weight"] = codes;
  gpt2["transformer.h.0.mlp.c_fc.SCB"] = scales;
  const at::Tensor values = at::empty({15, 60});
  open("gpt2", gpt2, R"({"load_in_8bit": true})")
      ->read("transformer.h.0.mlp.c_fc.weight", checkpoint::whole_box({15, 60}), values);
  EXPECT_TRUE(at::allclose(values.t(), codes * scales.unsqueeze(1) / 127.0));

  // AutoGPTQ writes a bias for every layer, and Qwen2's q_proj has one.
  Tensors qwen2 = tensors_of("qwen2");
  const std::string q = "model.layers.0.self_attn.q_proj.", o = "model.layers.0.self_attn.o_proj.";
  for (const std::string& layer : {q, o}) {
    qwen2.erase(layer + "weight");
    qwen2[layer + "qweight"] = at::zeros({3, 24}, at::kInt);
    qwen2[layer + "qzeros"] = at::zeros({1, 3}, at::kInt);
    qwen2[layer + "scales"] = at::ones({1, 24}, at::kHalf);
    qwen2[layer + "bias"] = at::zeros({24});
  }
  const auto files = open("qwen2", qwen2, R"({"quant_method": "gptq", "bits": 4})");
  EXPECT_NE(files->find(q + "bias"), nullptr);
  EXPECT_EQ(files->find(o + "bias"), nullptr);
}

TEST(Load, AVocabularyWithBiasesOrRowsForLayersKeepsItsSize) {
  for (const char* family : {"phi", "gemma4_shared"}) {
    const BaseModel base = BaseModel::open(reference_folder(family));
    EXPECT_NO_THROW(base.with_vocabulary({.count = base.config().vocab_size}));
    try {
      base.with_vocabulary({.count = 70});
      FAIL() << "no error";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), "E-MODEL-UNSUPPORTED") << error.what();
    }
  }
}

TEST(Load, LayersThatReadFarAreNotCutIntoStages) {
  const auto model = build_model(BaseModel::open(reference_folder("gemma4_shared")).config(), at::kFloat);
  try {
    plan_pipeline(*model, 2, {});
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), "E-CONFIG-PIPELINE") << error.what();
  }
}

TEST(Load, ConvertsToTheTypeOfTheParameter) {
  const auto narrow = load_reference_model("smollm2", at::kBFloat16);
  const auto wide = load_reference_model("smollm2", at::kDouble);
  const auto wide_parameters = wide->named_parameters();
  for (const auto& item : narrow->named_parameters()) {
    EXPECT_EQ(item.value().scalar_type(), at::kBFloat16);
    EXPECT_TRUE(at::equal(item.value(), wide_parameters[item.key()].to(at::kBFloat16))) << item.key();
  }
}

}  // namespace
}  // namespace tessera::models
