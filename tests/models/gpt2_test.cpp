// Tests of GPT-2 beside those of all families (reference_test.cpp): its files, its adapters, its config.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tessera/core/error.h"
#include "tessera/io/file.h"
#include "tessera/models/common/causal_lm.h"
#include "tessera/models/gpt2/model.h"
#include "tessera/models/parallelize_plan.h"
#include "tessera/ops/leaf.h"
#include "tessera/peft/adapter_files.h"
#include "tessera/peft/merge.h"

#include "tests/models/bad_config.h"
#include "tests/models/reference_models.h"
#include "tests/testing/skip.h"
#include "tests/testing/temp_folder.h"

namespace tessera::models {
namespace {

using nlohmann::json;
using tessera::testing::TempFolder;
using ::testing::HasSubstr;

json config_json() {
  return {{"model_type", "gpt2"}, {"n_embd", 12}, {"n_head", 3}, {"n_layer", 2}, {"vocab_size", 31}};
}

Gpt2Config read(const json& value) {
  return read_gpt2_config(io::JsonReader::parse(value.dump(), "config.json"));
}

class BadGpt2Config : public ::testing::TestWithParam<BadCase> {};

TEST_P(BadGpt2Config, EndsInAnErrorThatNamesFileAndKey) { expect_refused(config_json(), GetParam(), read); }

INSTANTIATE_TEST_SUITE_P(
    Cases, BadGpt2Config,
    ::testing::Values(
        BadCase{"heads", {{"n_head", 5}}, kConfig, "a multiple of 5"},
        BadCase{"zero", {{"n_layer", 0}}, kConfig, "got 0"},
        BadCase{"inner", {{"n_inner", -1}}, kConfig, "key 'n_inner'"},
        BadCase{
            "huge", {{"n_embd", 1 << 30}, {"n_head", 1}, {"vocab_size", 1 << 30}}, kConfig, "2^44 elements"},
        BadCase{"activation", {{"activation_function", "relu"}}, kUnsupported, "'relu'"},
        BadCase{"cross", {{"add_cross_attention", true}}, kUnsupported, "add_cross_attention"},
        BadCase{"quantised", {{"quantization_config", {{"bits", 4}}}}, kUnsupported, "quantization_config"}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(Gpt2Config, DefaultsAreThoseOfTransformers) {
  const Gpt2Config config = read({{"model_type", "gpt2"}});
  EXPECT_EQ(config.vocab_size, 50257);
  EXPECT_EQ(config.hidden_size, 768);
  EXPECT_EQ(config.num_layers, 12);
  EXPECT_EQ(config.head_dim, 64);
  EXPECT_EQ(config.intermediate_size, 3072);
  EXPECT_EQ(config.max_position_embeddings, 1024);
  EXPECT_TRUE(config.tie_word_embeddings);
  EXPECT_EQ(config.document_bound->tokens, 1024);
  EXPECT_EQ(config.embedding_dropout, 0.1);
  EXPECT_EQ(config.residual_dropout, 0.1);
  EXPECT_EQ(config.attention_dropout, 0.1);
  EXPECT_EQ(config.training_note, "");
}

TEST(Gpt2, TensorParallelismCutsItsLayers) {
  using Kind = parallel::LayerStyle::Kind;
  const auto model = build_model(*parse_model_config(config_json().dump(), "config.json"), at::kFloat);
  const parallel::TensorParallelPlan plan = tensor_parallel_plan(*model);
  std::vector<std::pair<std::string, Kind>> want = {{"transformer.drop", Kind::Sliced},
                                                    {"transformer.h.0.mixer_dropout", Kind::Sliced},
                                                    {"transformer.h.0.mlp_dropout", Kind::Sliced},
                                                    {"transformer.h.1.mixer_dropout", Kind::Sliced},
                                                    {"transformer.h.1.mlp_dropout", Kind::Sliced},
                                                    {"transformer.wte", Kind::Vocabulary},
                                                    {"transformer.wpe", Kind::Sliced},
                                                    {"transformer.ln_f", Kind::PerToken}};
  for (const std::string block : {"transformer.h.0.", "transformer.h.1."}) {
    want.insert(want.end(), {{block + "ln_1", Kind::PerToken},
                             {block + "attn", Kind::Region},
                             {block + "attn.c_attn", Kind::Colwise},
                             {block + "attn.c_proj", Kind::Rowwise},
                             {block + "ln_2", Kind::PerToken},
                             {block + "mlp", Kind::Region},
                             {block + "mlp.c_fc", Kind::Colwise},
                             {block + "mlp.c_proj", Kind::Rowwise}});
  }
  ASSERT_EQ(plan.layers.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) {
    EXPECT_EQ(plan.layers[i].first, want[i].first);
    EXPECT_EQ(plan.layers[i].second.kind, want[i].second) << want[i].first;
  }
  EXPECT_EQ(plan.layers[10].second.unit, 3 * 4) << "a head's query, key and value";
  EXPECT_EQ(plan.most_shared_parts, 0);
}

TEST(Gpt2, DocumentsEndWherePositionsEnd) {
  const auto model = load_reference_model("gpt2", at::kFloat);
  const auto ids = [](int64_t length) { return at::arange(length).remainder(90) + 3; };
  EXPECT_EQ(model->logits(pack_ids(ids(64))).size(0), 64);
  try {
    model->logits(pack_ids(ids(65)));
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), "E-MODEL-LENGTH");
    EXPECT_THAT(error.what(), HasSubstr("n_positions"));
  }
}

// The files are of the model without its head, as it was first published, and hold the masks of old versions.
TEST(Gpt2, LoadsFilesWithoutAPrefix) {
  TempFolder folder;
  io::write_file_atomic(folder / "config.json",
                        io::read_file(reference_folder("gpt2") + "/config.json", 1 << 20));
  const auto from = io::SafetensorsFile::open(reference_folder("gpt2") + "/model.safetensors");
  std::vector<io::TensorSpec> specs = {{"h.0.attn.bias", DType::F32, {1, 1, 2, 2}}};
  for (const io::TensorInfo& tensor : from.tensors()) {
    specs.push_back({tensor.name.substr(std::string("transformer.").size()), tensor.dtype, tensor.shape});
  }
  io::SafetensorsWriter writer(folder / "model.safetensors", specs);
  const std::vector<float> mask(4);
  writer.write("h.0.attn.bias", 0, mask.data(), 16);
  for (const io::TensorInfo& tensor : from.tensors()) {
    std::vector<char> bytes(static_cast<size_t>(tensor.num_bytes()));
    from.read(tensor, 0, tensor.num_bytes(), bytes.data());
    writer.write(tensor.name.substr(std::string("transformer.").size()), 0, bytes.data(), tensor.num_bytes());
  }
  writer.commit();
  const auto model = build_model(folder.path(), at::kFloat);
  load_weights(*model, io::ModelFiles::open(folder.path()));
  const auto batch = pack_ids(at::arange(3, 20));
  EXPECT_TRUE(at::equal(model->logits(batch), load_reference_model("gpt2", at::kFloat)->logits(batch)));

  // An adapter of the model with its prefix is merged into them all the same.
  peft::merge_adapter(folder_tensors(folder.path()), reference_folder("gpt2") + "/adapter",
                      folder / "merged");
  peft::merge_adapter(reference_tensors("gpt2"), reference_folder("gpt2") + "/adapter", folder / "prefixed");
  const auto logits_of = [&](const std::string& path) {
    const auto merged = build_model(path, at::kFloat);
    load_weights(*merged, io::ModelFiles::open(path));
    return merged->logits(batch);
  };
  EXPECT_TRUE(at::equal(logits_of(folder / "merged"), logits_of(folder / "prefixed")));
}

// The rows of joined projections, in GPT-2, Phi-3, MPT, Qwen3.5 and LFM2, lie in other orders than in files.
// The text part of a multimodal model has other names in its files than in its adapters, and PEFT also adapts
// a layer of the vision tower, which the merge changes too. In Gemma 4 the layer of the keys makes the
// values.
TEST(JoinedProjections, AnAdapterOfPeftGivesItsLogitsBesideAndMerged) {
  struct Case {
    const char* family;
    int64_t layers;
    double tolerance = 1e-4;  // of float32; the memory of delta nets makes more of a rounding
  };
  for (const auto& [family, layers, tolerance] :
       {Case{"gpt2", 12}, Case{"phi3", 4}, Case{"gemma3_multimodal", 5}, Case{"qwen3_5", 7, 1e-3},
        Case{"qwen3_5_multimodal", 2, 1e-3}, Case{"phi", 4}, Case{"gptj", 4}, Case{"opt", 4},
        Case{"bloom", 4}, Case{"mpt", 4}, Case{"lfm2", 8, 1e-3}, Case{"gemma4", 9},
        Case{"gemma4_shared", 16}}) {
    SCOPED_TRACE(family);
    const std::string base = reference_folder(family), adapter = base + "/adapter";
    const TensorFile file(base + "/reference.safetensors");
    const auto model = load_reference_model(family, at::kFloat);
    peft::load_adapter(*model, adapter);
    TempFolder folder;
    const peft::MergeReport report = peft::merge_adapter(folder_tensors(base), adapter, folder / "merged");
    EXPECT_EQ(report.num_merged, layers);
    const auto merged = build_model(folder / "merged", at::kFloat);
    load_weights(*merged, BaseModel::open(folder / "merged").tensors());
    const auto documents = reference_documents(file);
    for (size_t i = 0; i < documents.size(); ++i) {
      const at::Tensor want = file.get("logits_lora." + std::to_string(i));
      EXPECT_GT(max_difference(file.get("logits." + std::to_string(i)), want), 0.1);
      EXPECT_LT(max_difference(model->logits(pack({documents[i]})), want), tolerance);
      EXPECT_LT(max_difference(merged->logits(pack({documents[i]})), want), tolerance);
    }
  }
}

// The files that we write for an adapter hold what PEFT's do.
TEST(Gpt2, AnAdapterIsWrittenAsPeftDoes) {
  const std::string base = reference_folder("gpt2"), original = base + "/adapter";
  const auto model = build_model(base, at::kFloat);
  const peft::AdapterConfig config = peft::read_adapter_config(original);
  const peft::LoraTargets targets = peft::apply_adapter(*model, config, peft::open_adapter(original));
  const auto plan =
      peft::adapter_folder(peft::adapter_table(*model, targets), config.options, targets, "gpt2");
  const auto wanted = io::SafetensorsFile::open(original + "/adapter_model.safetensors");
  ASSERT_EQ(plan.table.stored_tensors().size(), wanted.tensors().size());
  for (const auto& tensor : plan.table.stored_tensors()) {
    ASSERT_NE(wanted.find(tensor.name), nullptr) << tensor.name;
    EXPECT_EQ(wanted.find(tensor.name)->shape, tensor.shape) << tensor.name;
  }
  ASSERT_EQ(plan.files.size(), 1U);
  const json written = json::parse(plan.files[0].second);
  const json original_config = json::parse(io::read_file(original + "/adapter_config.json", 1 << 20));
  for (const char* key : {"fan_in_fan_out", "target_modules", "r", "lora_alpha", "bias", "peft_type"}) {
    EXPECT_EQ(written.at(key), original_config.at(key)) << key;
  }
}

TEST(Gpt2, AnAdapterKeepsWholeModulesAsTheBaseDoes) {
  const auto model = build_model(reference_folder("gpt2"), at::kFloat);
  peft::LoraOptions options;
  options.target_modules = {"c_attn"};
  options.modules_to_save = {"c_fc"};
  const auto table = peft::adapter_table(*model, peft::apply_lora(*model, options));
  const auto base = io::SafetensorsFile::open(reference_folder("gpt2") + "/model.safetensors");
  int64_t saved = 0;
  for (const auto& tensor : table.stored_tensors()) {
    const auto name = peft::from_peft_name(tensor.name);
    if (base.find(*name) == nullptr) continue;
    EXPECT_EQ(base.find(*name)->shape, tensor.shape) << *name;
    ++saved;
  }
  EXPECT_EQ(saved, 6);
}

TEST(Gpt2, ASequencesLogitsAreTheSameBitsInAnyBatch) {
  if (&ops::leaves(at::ones({1})) != &ops::host_leaves()) GTEST_SKIP() << tessera::testing::skip::kPlainOps;
  const auto model = load_reference_model("gpt2", at::kFloat);
  const auto next = [&](int64_t count) {
    nn::KvCache cache(model->cache_options());
    std::vector<NewTokens> prompts, tokens;
    for (int64_t i = 0; i < count; ++i) {
      prompts.push_back({cache.add(), {5, 9 + i, 40}});
      tokens.push_back({prompts.back().sequence, {17 + i}});
    }
    for (const NewTokens& prompt : prompts) model->next_logits(cache, {prompt});
    return model->next_logits(cache, tokens)[0].clone();
  };
  const at::Tensor alone = next(1);
  for (const int64_t count : {2, 3, 7}) EXPECT_TRUE(at::equal(next(count), alone)) << count;
}

}  // namespace
}  // namespace tessera::models
