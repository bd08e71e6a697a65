#include "tessera/models/llama/config.h"

#include <set>
#include <string_view>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tessera/core/error.h"
#include "tessera/io/file.h"
#include "tessera/models/parallelize_plan.h"
#include "tessera/models/registry.h"
#include "tessera/nn/random_scope.h"
#include "tessera/nn/transformer_block.h"
#include "tessera/parallel/tensor_parallel/tensor_parallel.h"

#include "tests/models/bad_config.h"
#include "tests/testing/temp_folder.h"

namespace tessera::models {
namespace {

using nlohmann::json;
using tessera::testing::TempFolder;
using ::testing::HasSubstr;

json llama_json() {
  return {{"model_type", "llama"},    {"vocab_size", 97},
          {"hidden_size", 24},        {"intermediate_size", 28},
          {"num_hidden_layers", 2},   {"num_attention_heads", 4},
          {"num_key_value_heads", 2}, {"max_position_embeddings", 64}};
}

LlamaConfig read(const json& value) {
  TempFolder folder;
  io::write_file_atomic(folder / "config.json", value.dump());
  return read_llama_config(io::JsonReader::open(folder / "config.json"));
}

class BadConfig : public ::testing::TestWithParam<BadCase> {};

TEST_P(BadConfig, EndsInAnErrorThatNamesFileAndKey) { expect_refused(llama_json(), GetParam(), read); }

INSTANTIATE_TEST_SUITE_P(
    Cases, BadConfig,
    ::testing::Values(
        BadCase{"missing", {{"hidden_size", nullptr}}, kConfig, "key 'hidden_size': missing"},
        BadCase{"text_for_number", {{"vocab_size", "many"}}, kConfig, "key 'vocab_size'"},
        BadCase{"fraction", {{"num_hidden_layers", 2.5}}, kConfig, "got 2.5"},
        BadCase{"zero", {{"num_attention_heads", 0}}, kConfig, "got 0"},
        BadCase{"negative", {{"intermediate_size", -4}}, kConfig, "got -4"},
        BadCase{"overflow", {{"vocab_size", 18446744073709551615ULL}}, kConfig, "key 'vocab_size'"},
        BadCase{"layers", {{"num_hidden_layers", 10001}}, kConfig, "to 10000"},
        BadCase{"huge_weight",
                {{"vocab_size", 2147483648}, {"hidden_size", 2147483648}, {"head_dim", 4}},
                kConfig,
                "2^44 elements"},
        BadCase{"kv_heads", {{"num_key_value_heads", 3}}, kConfig, "a divisor of 4"},
        BadCase{"uneven_heads", {{"hidden_size", 26}}, kConfig, "a multiple of 4"},
        BadCase{"odd_head", {{"head_dim", 5}}, kConfig, "even head size"},
        BadCase{"bool_for_number", {{"rms_norm_eps", true}}, kConfig, "key 'rms_norm_eps'"},
        BadCase{"number_for_bool", {{"attention_bias", 1}}, kConfig, "true or false"},
        BadCase{"rope_theta", {{"rope_theta", -1.0}}, kConfig, "key 'rope_theta'"},
        BadCase{"rope_list", {{"rope_scaling", {1, 2}}}, kConfig, "an object"},
        BadCase{
            "rope_factor", {{"rope_scaling", {{"type", "linear"}}}}, kConfig, "key 'rope_scaling.factor'"},
        BadCase{"llama3_order",
                {{"rope_scaling",
                  {{"rope_type", "llama3"},
                   {"factor", 8.0},
                   {"low_freq_factor", 4.0},
                   {"high_freq_factor", 3.0}}}},
                kConfig,
                "low_freq_factor"},
        BadCase{
            "rope_type", {{"rope_scaling", {{"rope_type", "proportional"}}}}, kUnsupported, "'proportional'"},
        BadCase{"partial_rotary", {{"partial_rotary_factor", 0.5}}, kUnsupported, "part of each head"},
        BadCase{"layered_rope",
                {{"rope_parameters", {{"full_attention", json::object()}}}},
                kUnsupported,
                "layers"},
        BadCase{"activation", {{"hidden_act", "gelu"}}, kUnsupported, "'gelu'"},
        BadCase{"quantised", {{"quantization_config", {{"bits", 4}}}}, kUnsupported, "quantization_config"},
        BadCase{"dropout", {{"attention_dropout", 1.0}}, kConfig, "attention_dropout"},
        BadCase{"architecture",
                {{"architectures", {"LlamaForQuestionAnswering"}}},
                kUnsupported,
                "LlamaForQuestionAnswering"},
        BadCase{"layer_types", {{"layer_types", {"linear_attention"}}}, kUnsupported, "'linear_attention'"}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(LlamaConfigTest, DefaultsAreThoseOfTheFamily) {
  const LlamaConfig llama = read(llama_json());
  EXPECT_EQ(llama.head_dim, 6);
  EXPECT_EQ(llama.rope.theta, 10000.0);
  EXPECT_EQ(llama.rms_norm_eps, 1e-6);
  EXPECT_FALSE(llama.tie_word_embeddings || llama.qkv_bias || llama.output_bias || llama.mlp_bias ||
               llama.qk_norm);
  EXPECT_FALSE(llama.document_bound.has_value());
  EXPECT_EQ(llama.generation_bound->tokens, 64);

  json value = llama_json();
  value["model_type"] = "qwen2";
  EXPECT_TRUE(read(value).qkv_bias);
  EXPECT_FALSE(read(value).output_bias);
  value["model_type"] = "qwen3";
  EXPECT_TRUE(read(value).qk_norm);
  EXPECT_EQ(read(value).head_dim, 128);
}

TEST(LlamaConfigTest, ExpertsOfMixtralAndQwen3Moe) {
  json value = llama_json();
  EXPECT_EQ(read(value).num_experts, 0);
  value["model_type"] = "mixtral";
  const LlamaConfig mixtral = read(value);
  EXPECT_EQ(mixtral.num_experts, 8);
  EXPECT_EQ(mixtral.experts_per_token, 2);
  EXPECT_EQ(mixtral.experts.size, 28);
  EXPECT_EQ(mixtral.rope.theta, 1e6);
  EXPECT_EQ(mixtral.router_aux_loss_coef, 0.0);
  EXPECT_TRUE(mixtral.experts.normalises && mixtral.experts.is_sparse(0) && mixtral.experts.is_sparse(1));
  value["output_router_logits"] = true;
  EXPECT_EQ(read(value).router_aux_loss_coef, 0.001);

  value["model_type"] = "qwen3_moe";
  value["num_hidden_layers"] = 6;
  value["decoder_sparse_step"] = 2;
  value["mlp_only_layers"] = {3};
  const LlamaConfig qwen = read(value);
  EXPECT_EQ(qwen.num_experts, 128);
  EXPECT_EQ(qwen.experts.size, 768);
  EXPECT_FALSE(qwen.experts.normalises);
  EXPECT_EQ(qwen.experts.are_sparse, std::vector<bool>({false, true, false, false, false, true}));

  for (const BadCase& bad : {BadCase{"more than there are",
                                     {{"num_experts_per_tok", 9}, {"num_experts", 8}},
                                     kConfig,
                                     "num_experts_per_tok"},
                             BadCase{"too many", {{"num_experts", 1 << 20}}, kConfig, "num_experts"}}) {
    expect_refused(value, bad, read);
  }
  value["model_type"] = "mixtral";
  expect_refused(value, {"noise", {{"router_jitter_noise", 0.1}}, kUnsupported, "router_jitter_noise"}, read);
}

TEST(LlamaConfigTest, BothFormsOfRopeParametersMeanTheSame) {
  json old_form = llama_json(), new_form = llama_json();
  const json scaling = {{"factor", 8.0},
                        {"low_freq_factor", 1.0},
                        {"high_freq_factor", 4.0},
                        {"original_max_position_embeddings", 16}};
  old_form["rope_theta"] = 500000.0;
  old_form["rope_scaling"] = scaling;
  old_form["rope_scaling"]["type"] = "llama3";
  new_form["rope_parameters"] = scaling;
  new_form["rope_parameters"]["rope_type"] = "llama3";
  new_form["rope_parameters"]["rope_theta"] = 500000.0;
  for (const json& form : {old_form, new_form}) {
    const nn::RopeOptions rope = read(form).rope;
    EXPECT_EQ(rope.type, nn::RopeType::Llama3);
    EXPECT_EQ(rope.theta, 500000.0);
    EXPECT_EQ(rope.factor, 8.0);
    EXPECT_EQ(rope.original_max_position_embeddings, 16);
  }
}

TEST(LlamaConfigTest, SlidingWindowsAreThoseOfTheFamily) {
  using Windows = std::vector<int64_t>;
  json value = llama_json();
  value["sliding_window"] = 16;
  EXPECT_EQ(read(value).windows, Windows()) << "llama has no window";
  for (const char* family : {"qwen2", "qwen3"}) {
    json qwen = value;
    qwen["model_type"] = family;
    EXPECT_EQ(read(qwen).windows, Windows()) << "use_sliding_window is off";
    qwen["use_sliding_window"] = true;
    qwen["max_window_layers"] = 2;
    EXPECT_EQ(read(qwen).windows, (Windows{0, 0})) << "no layer is beyond max_window_layers";
    qwen["max_window_layers"] = 1;
    EXPECT_EQ(read(qwen).windows, (Windows{0, 16}));
    EXPECT_FALSE(read(qwen).document_bound.has_value());
    EXPECT_EQ(read(qwen).generation_bound->tokens, 64);
    qwen["layer_types"] = {"sliding_attention", "full_attention"};
    EXPECT_EQ(read(qwen).windows, (Windows{16, 0})) << "layer_types decides";
    qwen["layer_types"] = {"sliding_attention"};
    EXPECT_THROW(read(qwen), Error) << "a layer without a type";
  }
  value["model_type"] = "mistral";
  EXPECT_EQ(read(value).windows, (Windows{16, 16}));
  value["sliding_window"] = nullptr;
  EXPECT_EQ(read(value).windows, Windows());
}

TEST(LlamaConfigTest, TokensAndTypes) {
  json value = llama_json();
  value["eos_token_id"] = {2, 5};
  value["bos_token_id"] = 1;
  value["pad_token_id"] = -1;
  value["torch_dtype"] = "bfloat16";
  const LlamaConfig config = read(value);
  EXPECT_THAT(config.eos_token_ids, ::testing::ElementsAre(2, 5));
  EXPECT_EQ(config.bos_token_id, 1);
  EXPECT_FALSE(config.pad_token_id.has_value());
  EXPECT_EQ(config.stored_dtype, DType::BF16);
}

// Sizes under the keys of every family; each family reads its own.
json json_of_any(const std::string& model_type) {
  json value = llama_json();
  value.update({{"model_type", model_type},
                {"hidden_size", 32},
                {"n_layer", 2},
                {"n_embd", 24},
                {"n_head", 4},
                {"n_layers", 2},
                {"num_layers", 1},
                {"dim", 24},
                {"n_heads", 4},
                {"n_routed_experts", 16},
                {"new_decoder_architecture", true},
                {"num_kv_heads", 2},
                {"rotary_dim", 4},
                {"hidden_size_per_layer_input", 0},
                {"ffn_dim", 28}});
  if (model_type == "deepseek_v2") value["num_experts_per_tok"] = 2;  // has no default
  return value;
}

TEST(Registry, EveryRowIsWhole) {
  std::set<std::string> seen, architectures;
  for (const Family& family : families()) {
    ASSERT_FALSE(family.model_types.empty());
    SCOPED_TRACE(family.model_types.front());
    ASSERT_TRUE(family.read != nullptr && family.build != nullptr);
    for (const std::string& type : family.model_types) {
      SCOPED_TRACE(type);
      EXPECT_TRUE(seen.insert(type).second) << "two rows";
      EXPECT_EQ(find_family(type), &family);
      json value = json_of_any(type);
      if (parse_model_config(value.dump(), "config.json")->is_encoder)
        value["architectures"] = {"AnyForSequenceClassification"};
      const auto config = parse_model_config(value.dump(), "config.json");
      EXPECT_EQ(config->model_type, type);
      const auto model = build_model(*config, at::kFloat);
      EXPECT_EQ(model->blocks().size(), 2U);
      if (config->is_encoder_decoder) {
        EXPECT_THROW(tensor_parallel_plan(*model), Error);
        continue;
      }
      parallel::check_tensor_parallel(*model, tensor_parallel_plan(*model), 2);
    }
    for (const checkpoint::GgufArchitecture& architecture : family.gguf) {
      EXPECT_TRUE(architectures.insert(architecture.name).second) << architecture.name << " is in two rows";
      EXPECT_EQ(find_family(architecture.model_type), &family);
      EXPECT_FALSE(architecture.outer_names.empty() || architecture.layer_names.empty());
    }
  }
  EXPECT_EQ(architectures.size(), gguf_architectures().size());
}

// A known model_type may come with the factors of another family, as MiniCPM's files do.
TEST(Registry, FactorsThatAFamilyDoesNotReadAreRefused) {
  const auto parse = [](const json& value) { return parse_model_config(value.dump(), "config.json"); };
  for (const char* key : {"logit_scale", "embedding_multiplier", "final_logit_softcapping", "scale_emb"}) {
    expect_refused(llama_json(), {key, {{key, 12.5}}, kUnsupported, key}, parse);
  }
  json neutral = llama_json();
  neutral.update({{"residual_multiplier", 1.0}, {"clip_qkv", nullptr}});
  EXPECT_NO_THROW(parse(neutral));
  json granite = json_of_any("granite");
  granite["embedding_multiplier"] = 12.0;
  EXPECT_NO_THROW(parse(granite)) << "Granite reads it";
}

json multimodal_json(const json& text = json::object(), const json& whole = json::object()) {
  json value = {{"model_type", "gemma3"}, {"text_config", json_of_any("gemma3_text")}};
  value["text_config"].update(text);
  value.update(whole);
  return value;
}

// The places of dropout are those of Transformers' models, and absent keys have the values of its classes.
TEST(Registry, FamiliesDropWhereTransformersDoes) {
  const struct {
    const char* type;
    json keys;
    double embedding, mixer, mlp, classifier, attention = 0.0;
  } cases[] = {
      {"phi", {{"embd_pdrop", 0.2}, {"resid_pdrop", 0.3}}, 0.2, 0.3, 0.3, 0.1},
      {"phi3", {{"embd_pdrop", 0.2}, {"resid_pdrop", 0.3}}, 0.0, 0.3, 0.3, 0.1},
      {"gptj", {{"embd_pdrop", 0.2}, {"resid_pdrop", 0.3}, {"attn_pdrop", 0.4}}, 0.2, 0.3, 0.3, 0.1, 0.4},
      {"gpt_neox", {{"hidden_dropout", 0.2}, {"attention_dropout", 0.4}}, 0.2, 0.2, 0.2, 0.1, 0.4},
      {"falcon", {{"hidden_dropout", 0.2}, {"attention_dropout", 0.3}}, 0.0, 0.2, 0.2, 0.2},
      {"falcon",
       {{"new_decoder_architecture", false},
        {"multi_query", false},
        {"parallel_attn", false},
        {"hidden_dropout", 0.2},
        {"attention_dropout", 0.3}},
       0.0,
       0.3,
       0.2,
       0.2},
      {"bloom", {{"hidden_dropout", 0.2}, {"classifier_dropout", 0.4}}, 0.0, 0.2, 0.2, 0.4},
      {"falcon",
       {{"new_decoder_architecture", false},
        {"multi_query", false},
        {"alibi", true},
        {"attention_dropout", 0.3}},
       0.0,
       0.0,
       0.0,
       0.0,
       0.3},
      {"mpt", {{"resid_pdrop", 0.2}, {"attn_config", {{"attn_pdrop", 0.3}}}}, 0.0, 0.3, 0.3, 0.1, 0.3},
      {"starcoder2", {{"embedding_dropout", 0.2}, {"residual_dropout", 0.3}}, 0.2, 0.3, 0.3, 0.1},
      {"opt", json::object(), 0.0, 0.1, 0.1, 0.1},
      {"opt", {{"dropout", 0.0}}, 0.0, 0.0, 0.0, 0.1},
      {"stablelm", {{"hidden_dropout", 0.2}}, 0.0, 0.0, 0.2, 0.2},
      {"seed_oss", json::object(), 0.0, 0.1, 0.1, 0.1, 0.1},
      {"qwen3_5_text", json::object(), 0.0, 0.0, 0.0, 0.1},
      {"gemma2", {{"attention_dropout", 0.2}}, 0.0, 0.0, 0.0, 0.1, 0.2},
  };
  for (const auto& one : cases) {
    json value = json_of_any(one.type);
    value.update(one.keys);
    const auto config =
        std::dynamic_pointer_cast<const DecoderConfig>(parse_model_config(value.dump(), "config.json"));
    EXPECT_EQ(config->decoder.embedding_dropout, one.embedding) << value;
    EXPECT_EQ(config->classifier_dropout, one.classifier) << value;
    for (const auto& block : config->decoder.blocks) {
      EXPECT_EQ(block.mixer_dropout, one.mixer) << value;
      EXPECT_EQ(block.mlp_dropout, one.mlp) << value;
      EXPECT_EQ(block.attention.dropout, one.attention) << value;
    }
  }
}

// Falcon drops the sum of what attention and the MLP give, GPT-NeoX each of the two.
TEST(Registry, ParallelBranchesHaveOneMaskOrTwo) {
  const at::Tensor x = at::ones({5, 32});
  for (const char* type : {"falcon", "gpt_neox"}) {
    json value = json_of_any(type);
    value["hidden_dropout"] = 0.5;
    const auto model = build_model(*parse_model_config(value.dump(), "config.json"), at::kFloat);
    const nn::TransformerBlock& block = *model->blocks().front();
    const nn::RandomPlace place{1, 2, 3, {}, {0, 5}};
    const nn::RandomScope scope(place);
    const bool is_one = at::equal(block.mixer_dropout->forward(x), block.mlp_dropout->forward(x));
    EXPECT_EQ(is_one, std::string_view(type) == "falcon");
  }
}

// Transformers gives the pad token's row no gradient from lookups, but in a few families.
TEST(Registry, APadTokenHasARowThatLookupsDoNotTrain) {
  const auto row_of = [](const char* type, const json& keys) {
    json value = json_of_any(type);
    value.erase("pad_token_id");
    value["vocab_size"] = 40000;
    value.update(keys);
    return parse_model_config(value.dump(), "config.json")->fixed_row();
  };
  EXPECT_EQ(row_of("llama", {{"pad_token_id", 7}}), 7);
  EXPECT_EQ(row_of("llama", json::object()), std::nullopt);
  EXPECT_EQ(row_of("llama", {{"pad_token_id", 40000}}), std::nullopt);
  EXPECT_EQ(row_of("gpt_neox", {{"pad_token_id", 7}}), std::nullopt);
  // This is a default of the configuration class.
  EXPECT_EQ(row_of("phi3", json::object()), 32000);
  EXPECT_EQ(row_of("phi3", {{"pad_token_id", nullptr}}), std::nullopt);
}

TEST(Registry, AMultimodalModelIsReadAsItsTextPart) {
  const auto parse = [](const json& value) { return parse_model_config(value.dump(), "config.json"); };
  // Keys of the whole model go before those of its text part.
  const auto config = parse(multimodal_json({{"tie_word_embeddings", false}, {"eos_token_id", 7}},
                                            {{"eos_token_id", {1, 106}}, {"torch_dtype", "bfloat16"}}));
  EXPECT_TRUE(config->is_text_part && config->tie_word_embeddings);
  EXPECT_EQ(config->model_type, "gemma3_text");
  EXPECT_THAT(config->eos_token_ids, ::testing::ElementsAre(1, 106));
  EXPECT_EQ(config->stored_dtype, DType::BF16);
  EXPECT_FALSE(parse(multimodal_json(json::object(), {{"tie_word_embeddings", false}}))->tie_word_embeddings);
  EXPECT_FALSE(parse(json_of_any("gemma3_text"))->is_text_part);
  const auto model = build_model(*config, at::kFloat);
  EXPECT_TRUE(model->named_parameters().contains("model.language_model.norm.weight"));
  // A text part without a type has that of the configuration class.
  json llava = {{"model_type", "llava"}, {"text_config", llama_json()}};
  llava["text_config"].erase("model_type");
  EXPECT_EQ(parse(llava)->model_type, "llama");

  for (const BadCase& bad :
       {BadCase{"missing", {{"text_config", nullptr}}, kConfig, "key 'text_config'"},
        BadCase{"text", {{"text_config", "x"}}, kConfig, "key 'text_config'"},
        BadCase{"size", {{"text_config", {{"hidden_size", -1}}}}, kConfig, "text_config.hidden_size"},
        BadCase{
            "type", {{"text_config", {{"model_type", "dbrx"}}}}, kUnsupported, "text_config.model_type"}}) {
    expect_refused(multimodal_json(), bad, parse);
  }
}

// Defaults of keys that published files leave out, and forms of them that are refused.
TEST(Registry, DescribedFamiliesHaveTheDefaultsOfTheirClasses) {
  const auto read_as = [](const std::string& type, const json& changes = json::object()) {
    json value = json_of_any(type);
    value.update(changes);
    return std::dynamic_pointer_cast<const DecoderConfig>(parse_model_config(value.dump(), "config.json"));
  };
  const auto windows = [](const DecoderConfig& config) {
    std::vector<int64_t> all;
    for (const auto& block : config.decoder.blocks) all.push_back(block.attention.window);
    return all;
  };
  const json seven = {{"num_hidden_layers", 7}};
  EXPECT_THAT(windows(*read_as("gemma2", seven)), ::testing::ElementsAre(4096, 0, 4096, 0, 4096, 0, 4096));
  const auto gemma3 = read_as("gemma3_text", seven);
  EXPECT_THAT(windows(*gemma3), ::testing::ElementsAre(4096, 4096, 4096, 4096, 4096, 0, 4096));
  EXPECT_EQ(gemma3->decoder.ropes[0].theta, 1e6);
  EXPECT_EQ(gemma3->decoder.ropes[1].theta, 1e4);
  EXPECT_EQ(gemma3->decoder.logit_soft_cap, 0.0);
  EXPECT_EQ(read_as("gemma2")->decoder.logit_soft_cap, 30.0);
  EXPECT_EQ(read_as("gemma2", {{"final_logit_softcapping", nullptr}})->decoder.logit_soft_cap, 0.0);
  EXPECT_THAT(windows(*read_as("olmo3", seven)),
              ::testing::ElementsAre(4096, 4096, 4096, 0, 4096, 4096, 4096));
  EXPECT_THAT(windows(*read_as("cohere2", seven)),
              ::testing::ElementsAre(4096, 4096, 4096, 0, 4096, 4096, 4096));
  EXPECT_THAT(windows(*read_as("exaone4", {{"sliding_window", nullptr}})), ::testing::ElementsAre(0, 0));
  EXPECT_EQ(read_as("cohere")->decoder.ropes[0].theta, 5e5);
  EXPECT_EQ(read_as("cohere")->decoder.logit_scale, 0.0625);
  EXPECT_EQ(read_as("smollm3")->decoder.ropes[0].theta, 2e6);
  EXPECT_EQ(read_as("smollm3", seven)->decoder.blocks[3].attention.rotary, -1);
  EXPECT_TRUE(read_as("gemma")->tie_word_embeddings);
  EXPECT_EQ(read_as("glm")->decoder.ropes[0].head_dim, 64);

  EXPECT_THAT(windows(*read_as("qwen2_moe", seven)), ::testing::Each(0));
  const auto qwen2_moe = read_as(
      "qwen2_moe", {{"num_hidden_layers", 7}, {"use_sliding_window", true}, {"max_window_layers", 4}});
  EXPECT_THAT(windows(*qwen2_moe), ::testing::ElementsAre(4096, 0, 4096, 0, 0, 0, 0));
  const nn::TransformerBlockOptions& block = qwen2_moe->decoder.blocks[0];
  EXPECT_TRUE(block.attention.qkv_bias && !block.attention.output_bias);
  EXPECT_EQ(block.sparse->num_experts, 60);
  EXPECT_EQ(block.sparse->experts_per_token, 4);
  EXPECT_EQ(block.sparse->expert.intermediate_size, 1408);
  EXPECT_EQ(block.sparse->shared->intermediate_size, 5632);
  EXPECT_FALSE(block.sparse->router.normalises);
  EXPECT_EQ(read_as("olmoe")->num_experts, 64);
  EXPECT_EQ(read_as("olmoe", {{"output_router_logits", true}})->router_aux_loss_coef, 0.01);

  const auto v3 = read_as("deepseek_v3", {{"num_hidden_layers", 4}});
  EXPECT_FALSE(v3->decoder.blocks[2].sparse.has_value());
  const nn::TransformerBlockOptions& last = v3->decoder.blocks[3];
  EXPECT_EQ(last.sparse->router.groups, 8);
  EXPECT_EQ(last.sparse->router.groups_per_token, 4);
  EXPECT_EQ(last.sparse->router.scale, 2.5);
  EXPECT_EQ(last.attention.head_dim, 128 + 64);
  EXPECT_EQ(last.attention.latent->q_rank, 1536);
  EXPECT_EQ(read_as("deepseek_v3", {{"q_lora_rank", nullptr}})->decoder.blocks[0].attention.latent->q_rank,
            std::nullopt);
  // One layer behind the last predicts the token after the next.
  const auto v3_model = build_model(*v3, at::kFloat);
  EXPECT_TRUE(v3_model->ignores_tensor("model.layers.4.embed_tokens.weight"));
  EXPECT_FALSE(v3_model->ignores_tensor("model.layers.3.embed_tokens.weight"));
  EXPECT_FALSE(v3_model->ignores_tensor("model.layers.40.embed_tokens.weight"));
  EXPECT_FALSE(read_as("glm4_moe_lite")->decoder.blocks[0].sparse.has_value());
  EXPECT_EQ(read_as("mistral4")->decoder.ropes[0].factor, 128.0);
  EXPECT_EQ(read_as("gpt_oss")->decoder.blocks[0].attention.window, 128);

  const auto next = read_as("qwen3_next", {{"num_hidden_layers", 5}});
  for (size_t layer = 0; layer < 5; ++layer)
    EXPECT_EQ(next->decoder.blocks[layer].delta_net.has_value(), layer != 3);
  const nn::GatedDeltaNetOptions& mixer = *next->decoder.blocks[0].delta_net;
  EXPECT_EQ(mixer.num_key_heads, 16);
  EXPECT_EQ(mixer.num_value_heads, 32);
  EXPECT_EQ(mixer.key_dim, 128);
  EXPECT_EQ(mixer.taps, 4);
  EXPECT_TRUE(mixer.is_joined);
  EXPECT_FALSE(read_as("qwen3_5_text")->decoder.blocks[0].delta_net->is_joined);
  EXPECT_EQ(next->decoder.ropes[0].head_dim, 64) << "a quarter of a head of 256 is rotated";
  EXPECT_EQ(next->num_experts, 512);
  EXPECT_EQ(next->experts_per_token, 10);
  EXPECT_TRUE(next->decoder.blocks[3].sparse->router.normalises);
  EXPECT_EQ(read_as("qwen3_5_moe_text")->num_experts, 256);
  EXPECT_FALSE(read_as("qwen3_5_text", {{"layer_types", {"full_attention", "linear_attention"}}})
                   ->decoder.blocks[0]
                   .delta_net);
  const auto next_model = build_model(*next, at::kFloat);
  EXPECT_TRUE(next_model->ignores_tensor("mtp.layers.0.input_layernorm.weight"));
  EXPECT_FALSE(next_model->ignores_tensor("model.mtp.weight"));

  const auto gemma4 = read_as("gemma4_text", seven);
  EXPECT_THAT(windows(*gemma4), ::testing::ElementsAre(512, 512, 512, 512, 512, 0, 0)) << "the last sees all";
  const auto& sliding = gemma4->decoder.blocks[4].attention;
  EXPECT_TRUE(sliding.head_dim == 256 && sliding.scale == 1.0 && sliding.v == "v_proj");
  EXPECT_EQ(gemma4->decoder.blocks[6].attention.head_dim, 512);
  EXPECT_EQ(gemma4->decoder.ropes[0].theta, 1e6);
  EXPECT_EQ(gemma4->decoder.ropes[0].turning, 64);
  EXPECT_EQ(gemma4->decoder.ropes[1].theta, 1e4);
  EXPECT_TRUE(gemma4->tie_word_embeddings);
  EXPECT_EQ(
      read_as("gemma4_text", {{"num_global_key_value_heads", 1}})->decoder.blocks[1].attention.num_kv_heads,
      2)
      << "means something where keys are the values";
  const json kept = {{"per_layer_config", {{"0", {{"num_key_value_heads", 4}}}}}, {"attention_k_eq_v", true}};
  EXPECT_EQ(read_as("gemma4_text", kept)->decoder.blocks[0].attention.num_kv_heads, 4);
  EXPECT_EQ(read_as("gemma4_text", kept)->decoder.blocks[1].attention.head_dim, 256);
  EXPECT_EQ(read_as("gemma4_text", kept)->decoder.blocks[1].attention.v, "");

  const auto shared = read_as("gemma4_text", {{"num_kv_shared_layers", 3},
                                              {"num_hidden_layers", 6},
                                              {"use_double_wide_mlp", true},
                                              {"hidden_size_per_layer_input", nullptr},
                                              {"layer_types",
                                               {"full_attention", "sliding_attention", "full_attention",
                                                "sliding_attention", "full_attention", "full_attention"}}});
  const auto& blocks = shared->decoder.blocks;
  EXPECT_EQ(blocks[0].attention.shared_keys, -1) << "a later layer of its type gives";
  EXPECT_TRUE(!blocks[1].attention.reads_keys() && blocks[3].attention.reads_keys());
  EXPECT_EQ(blocks[1].attention.shared_keys, blocks[3].attention.shared_keys);
  EXPECT_EQ(blocks[2].attention.shared_keys, blocks[5].attention.shared_keys);
  EXPECT_EQ(blocks[5].mlp.intermediate_size, 2 * blocks[2].mlp.intermediate_size);
  EXPECT_EQ(shared->decoder.layer_inputs->size, 256);
  EXPECT_EQ(shared->decoder.layer_inputs->rows, 262144);
  EXPECT_FALSE(gemma4->has_layer_inputs || gemma4->shares_keys);
  const auto sharing = build_model(*shared, at::kFloat);
  EXPECT_TRUE(sharing->ignores_tensor("model.layers.5.self_attn.k_norm.weight"));
  EXPECT_FALSE(sharing->ignores_tensor("model.layers.2.self_attn.k_norm.weight"));

  EXPECT_TRUE(read_as("opt")->tie_word_embeddings);
  EXPECT_EQ(read_as("opt")->decoder.positions->rows, 66) << "two before the first";
  EXPECT_EQ(read_as("phi")->decoder.ropes[0].head_dim, 4) << "half of a head of 8 is rotated";
  EXPECT_FALSE(read_as("bloom")->generation_bound.has_value());
  EXPECT_EQ(read_as("apertus")->decoder.ropes[0].type, nn::RopeType::Llama3);
  EXPECT_EQ(read_as("apertus")->decoder.ropes[0].theta, 12e6);
  EXPECT_TRUE(read_as("lfm2")->decoder.blocks[0].has_attention());
  EXPECT_EQ(read_as("lfm2")->intermediate_size, 256) << "two thirds of 28, rounded up";
  EXPECT_EQ(read_as("lfm2", {{"block_auto_adjust_ff_dim", false}})->intermediate_size, 28);
  const auto lfm2 = read_as("lfm2", {{"full_attn_idxs", {1}}});
  EXPECT_EQ(lfm2->decoder.blocks[0].convolution->taps, 3);
  EXPECT_FALSE(lfm2->decoder.blocks[1].convolution);
  EXPECT_FALSE(read_as("lfm2_moe", seven)->decoder.blocks[1].sparse.has_value());
  EXPECT_EQ(read_as("lfm2_moe", seven)->decoder.blocks[2].sparse->num_experts, 32);
  const auto llama4 = read_as("llama4_text", seven);
  EXPECT_EQ(llama4->decoder.blocks[3].attention.rotary, 1) << "no positions, but a factor of queries";
  EXPECT_EQ(llama4->decoder.blocks[3].attention.chunk, 0);
  EXPECT_EQ(llama4->decoder.blocks[2].attention.chunk, 8192);
  EXPECT_EQ(llama4->decoder.ropes[0].theta, 5e5);
  EXPECT_EQ(llama4->experts_per_token, 1);
  const auto old_buffers = build_model(*read_as("gptj"), at::kFloat);
  EXPECT_TRUE(old_buffers->ignores_tensor("transformer.h.0.attn.masked_bias"));
  EXPECT_FALSE(old_buffers->ignores_tensor("transformer.h.0.attn.q_proj.bias"));

  for (const BadCase& bad :
       {BadCase{"falcon", {{"alibi", true}}, kUnsupported, "alibi"},
        BadCase{"phi", {{"tie_word_embeddings", true}}, kUnsupported, "tie_word_embeddings"},
        BadCase{"gptj", {{"rotary_dim", 5}}, kConfig, "rotary_dim"},
        BadCase{"opt", {{"word_embed_proj_dim", 16}}, kUnsupported, "word_embed_proj_dim"},
        BadCase{"bloom",
                {{"apply_residual_connection_post_layernorm", true}},
                kUnsupported,
                "apply_residual_connection_post_layernorm"},
        BadCase{"mpt", {{"attn_config", {{"alibi", false}}}}, kUnsupported, "alibi"},
        BadCase{"mpt", {{"attn_config", {{"qk_ln", true}}}}, kUnsupported, "qk_ln"},
        BadCase{"mpt", {{"no_bias", false}}, kUnsupported, "no_bias"},
        BadCase{"mpt", {{"attn_config", {{"alibi_bias_max", 6}}}}, kUnsupported, "alibi_bias_max"},
        BadCase{"apertus", {{"hidden_act", "mish"}}, kUnsupported, "'mish'"},
        BadCase{"lfm2", {{"layer_types", {"conv", "linear_attention"}}}, kUnsupported, "'linear_attention'"},
        BadCase{"llama4_text", {{"no_rope_layers", {1}}}, kConfig, "no_rope_layers"},
        BadCase{"llama4_text", {{"router_jitter_noise", 0.1}}, kUnsupported, "router_jitter_noise"},
        BadCase{"gemma3_text", {{"use_bidirectional_attention", true}}, kUnsupported, "bidirectional"},
        BadCase{"gemma4_text",
                {{"hidden_size_per_layer_input", nullptr}, {"vocab_size_per_layer_input", 60}},
                kConfig,
                "key 'vocab_size_per_layer_input': less than the vocabulary"},
        BadCase{"gemma4_text", {{"hidden_size_per_layer_input", int64_t{1} << 30}}, kConfig, "2^44"},
        BadCase{"gemma4_text", {{"num_kv_shared_layers", 2}}, kConfig, "num_kv_shared_layers"},
        BadCase{"gemma4_text",
                {{"num_kv_shared_layers", 1}, {"layer_types", {"sliding_attention", "full_attention"}}},
                kConfig,
                "no earlier layer is of the type of layer 1"},
        BadCase{"gemma4_text",
                {{"num_kv_shared_layers", 1},
                 {"layer_types", {"full_attention", "full_attention"}},
                 {"per_layer_config", {{"1", {{"num_key_value_heads", 1}}}}}},
                kUnsupported,
                "the keys of one with other heads"},
        BadCase{"gemma4_text", {{"use_bidirectional_attention", "all"}}, kUnsupported, "got 'all'"},
        BadCase{"gemma4_text", {{"enable_moe_block", true}}, kConfig, "key 'num_experts': missing"},
        BadCase{"gemma4_text",
                {{"enable_moe_block", true}, {"num_experts", 4}, {"moe_intermediate_size", 4}},
                kConfig,
                "key 'top_k_experts': missing"},
        BadCase{"gemma4_text", {{"global_head_dim", 7}}, kConfig, "even head size"},
        BadCase{"gemma4_text",
                {{"attention_k_eq_v", true}, {"num_global_key_value_heads", 3}},
                kConfig,
                "a divisor of 4"},
        BadCase{"gemma4_text",
                {{"per_layer_config", {{"2", {{"head_dim", 8}}}}}},
                kConfig,
                "key 'per_layer_config.2': no number of a layer"},
        BadCase{"gemma4_text",
                {{"per_layer_config", {{"1", {{"sliding_window", 8}}}}}},
                kUnsupported,
                "key 'per_layer_config.1.sliding_window'"},
        BadCase{"gemma4_text",
                {{"per_layer_config", {{"1", {{"head_dim", 8}}}}},
                 {"layer_types", {"full_attention", "full_attention"}}},
                kUnsupported,
                "several sizes"},
        BadCase{"gemma4_text",
                {{"rope_parameters", {{"full_attention", {{"rope_theta", 1e4}}}}},
                 {"layer_types", {"sliding_attention", "full_attention"}}},
                kConfig,
                "sliding_attention"},
        BadCase{"phi3",
                {{"rope_scaling", {{"type", "longrope"}, {"short_factor", {1.0}}, {"long_factor", {1.0}}}}},
                kConfig,
                "short_factor"},
        BadCase{"smollm3", {{"no_rope_layers", {1}}}, kConfig, "no_rope_layers"},
        BadCase{"exaone4", {{"sliding_window_pattern", "LLLG"}}, kUnsupported, "sliding_window_pattern"},
        BadCase{"olmoe", {{"clip_qkv", 8.0}}, kUnsupported, "clip_qkv"},
        BadCase{"deepseek_v3", {{"n_group", 5}}, kConfig, "n_group"},
        BadCase{"deepseek_v3", {{"v_head_dim", 2147483648}, {"kv_lora_rank", 2147483648}}, kConfig, "2^44"},
        BadCase{"deepseek_v3", {{"qk_nope_head_dim", 1 << 24}, {"kv_lora_rank", 1 << 24}}, kConfig, "2^44"},
        BadCase{"deepseek_v3", {{"n_group", 8}, {"topk_group", 1}}, kConfig, "n_group"},
        BadCase{"deepseek_v2", {{"topk_method", "noaux_tc"}}, kUnsupported, "topk_method"},
        BadCase{"glm4_moe_lite", {{"mlp_layer_types", {"dense"}}}, kConfig, "mlp_layer_types"},
        BadCase{"qwen3_next", {{"layer_types", {"linear_attention", "conv"}}}, kUnsupported, "'conv'"},
        BadCase{"qwen3_next", {{"layer_types", {"linear_attention"}}}, kConfig, "layer_types"},
        BadCase{"qwen3_next", {{"linear_num_value_heads", 24}}, kConfig, "a multiple of 16"},
        BadCase{"qwen3_next",
                {{"linear_key_head_dim", 1 << 20},
                 {"linear_num_key_heads", 1 << 20},
                 {"linear_num_value_heads", 1 << 20}},
                kConfig,
                "2^44"},
        BadCase{"qwen3_next", {{"hidden_act", "gelu"}}, kUnsupported, "hidden_act"},
        BadCase{"qwen3_5_text", {{"attn_output_gate", false}}, kUnsupported, "attn_output_gate"},
        BadCase{"qwen3_5_text", {{"mamba_ssm_dtype", "bfloat16"}}, kUnsupported, "mamba_ssm_dtype"},
        BadCase{"qwen3_5_moe_text", {{"full_attention_interval", 0}}, kConfig, "full_attention_interval"},
        BadCase{"gpt_neox", {{"rotary_pct", 0.2}}, kConfig, "rotary_pct"}}) {
    expect_refused(json_of_any(bad.name), bad,
                   [](const json& value) { return parse_model_config(value.dump(), "config.json"); });
  }
}

TEST(Registry, UnknownModelTypesAreRefusedWithTheKnownOnes) {
  TempFolder folder;
  json value = llama_json();
  value["model_type"] = "dbrx";
  io::write_file_atomic(folder / "config.json", value.dump());
  try {
    build_model(folder.path(), at::kFloat);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), kUnsupported);
    EXPECT_THAT(error.what(), HasSubstr("'dbrx'"));
    EXPECT_THAT(error.what(), HasSubstr("qwen3"));
  }
}

TEST(Registry, BrokenFilesAreModelErrors) {
  TempFolder folder;
  io::write_file_atomic(folder / "config.json", "{\"model_type\": ");
  EXPECT_THROW(build_model(folder.path(), at::kFloat), Error);
  io::write_file_atomic(folder / "config.json", "[1, 2]");
  try {
    build_model(folder.path(), at::kFloat);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::Model);
  }
}

}  // namespace
}  // namespace tessera::models
