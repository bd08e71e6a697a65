#include "tessera/models/common/causal_lm.h"

#include <array>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/core/error.h"
#include "tessera/models/common/head_rows.h"
#include "tessera/models/common/load.h"
#include "tessera/models/llama/config.h"
#include "tessera/nn/call_hook.h"

#include "tests/models/reference_models.h"
#include "tests/models/small_model.h"

namespace tessera::models {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::Not;

std::vector<std::string> names_of(const CausalLM& model) { return model.named_parameters().keys(); }

TEST(CausalLM, ParametersAreNamedAsInHuggingFaceFiles) {
  const auto names = names_of(*small_model());
  for (const char* name :
       {"model.embed_tokens.weight", "model.layers.0.self_attn.q_proj.weight",
        "model.layers.1.self_attn.o_proj.weight", "model.layers.1.mlp.gate_proj.weight",
        "model.layers.0.input_layernorm.weight", "model.layers.0.post_attention_layernorm.weight",
        "model.norm.weight", "lm_head.weight"}) {
    EXPECT_THAT(names, Contains(name));
  }
  EXPECT_EQ(names.size(), 3U + 2U * 9U);
}

TEST(CausalLM, TiedModelsHaveNoHeadOfTheirOwn) {
  const auto model = small_model(true);
  EXPECT_THAT(names_of(*model), Not(Contains("lm_head.weight")));
  ASSERT_EQ(model->tied_parameters().size(), 1U);
  EXPECT_EQ(model->tied_parameters()[0].alias, "lm_head.weight");
  EXPECT_EQ(model->tied_parameters()[0].owner, "model.embed_tokens.weight");
  EXPECT_TRUE(small_model()->tied_parameters().empty());
}

TEST(CausalLM, RowsOfHeadsAreBlocks) {
  const auto blocks_of = [](const char* family, const std::string& name) {
    const auto model = build_model(reference_folder(family), at::kFloat);
    const auto rows = head_rows(*model);
    for (const auto& [parameter, blocks] : rows)
      EXPECT_EQ(model->named_parameters()[parameter].size(0) % blocks.group, 0) << parameter;
    const auto found = rows.find(name);
    EXPECT_NE(found, rows.end()) << name;
    const nn::RowBlocks blocks = found->second;
    return std::array{model->named_parameters()[name].size(0) / blocks.group, blocks.group / blocks.head,
                      blocks.single / blocks.head};
  };
  using Shape = std::array<int64_t, 3>;  // groups; heads in a group; those whose rows are apart
  const auto config = [](const char* family) {
    return build_model(reference_folder(family), at::kFloat)->config();
  };
  EXPECT_EQ(blocks_of("llama3", "model.layers.0.self_attn.q_proj.weight"),
            (Shape{config("llama3").num_heads, 1, 0}));
  EXPECT_EQ(blocks_of("llama3", "model.layers.0.self_attn.k_proj.weight"),
            (Shape{config("llama3").num_kv_heads, 1, 0}));
  EXPECT_EQ(blocks_of("gpt2", "transformer.h.0.attn.c_attn.weight"), (Shape{config("gpt2").num_heads, 3, 1}));
}

TEST(CausalLM, EveryParameterHasARole) {
  using enum nn::ParameterRole;
  const auto roles_of = [](const char* family) {
    const auto model = build_model(reference_folder(family), at::kFloat);
    nn::ParameterRoles roles = model->parameter_roles();
    for (const std::string& name : names_of(*model)) EXPECT_TRUE(roles.contains(name)) << name;
    EXPECT_EQ(roles.size(), names_of(*model).size());
    return roles;
  };
  nn::ParameterRoles roles = roles_of("llama2");
  EXPECT_EQ(roles["model.embed_tokens.weight"], Embedding);
  EXPECT_EQ(roles["lm_head.weight"], OutputHead);
  EXPECT_EQ(roles["model.norm.weight"], Norm);
  EXPECT_EQ(roles["model.layers.0.self_attn.q_proj.weight"], Other);
  roles = roles_of("phi");
  EXPECT_EQ(roles["lm_head.weight"], OutputHead);
  EXPECT_EQ(roles["lm_head.bias"], Bias);
  roles = roles_of("bloom");
  EXPECT_EQ(roles["transformer.word_embeddings_layernorm.weight"], Norm);
  roles = roles_of("opt");
  EXPECT_EQ(roles["model.decoder.embed_positions.weight"], Positions);
  roles = roles_of("gpt2");
  EXPECT_EQ(roles["transformer.wte.weight"], Embedding) << "it is the output head, too";
  EXPECT_EQ(roles["transformer.wpe.weight"], Positions);
  EXPECT_EQ(roles["transformer.h.0.ln_1.bias"], Norm);
  EXPECT_EQ(roles["transformer.h.0.attn.c_attn.bias"], Bias);
  roles = roles_of("mixtral");
  EXPECT_EQ(roles["model.layers.0.block_sparse_moe.gate.weight"], Router);
  EXPECT_EQ(roles["model.layers.0.block_sparse_moe.experts.1.w2.weight"], Expert);
  EXPECT_TRUE(small_model(true)->parameter_roles()["model.embed_tokens.weight"] == Embedding);
}

TEST(CausalLM, IsBuiltOnTheMetaDevice) {
  const auto model = build_model(reference_folder("qwen3"), at::kBFloat16);
  for (const auto& parameter : model->parameters()) {
    EXPECT_TRUE(parameter.is_meta());
    EXPECT_TRUE(parameter.requires_grad());
    EXPECT_EQ(parameter.scalar_type(), at::kBFloat16);
  }
  EXPECT_EQ(model->blocks().size(), 3U);
}

TEST(CausalLM, LossAgreesWithLogits) {
  const auto model = small_model();
  at::manual_seed(5);
  const at::Tensor ids = at::randint(0, 31, {9}, at::kLong);
  auto batch = pack({{ids.narrow(0, 0, 4), ids.narrow(0, 0, 4)}, {ids.narrow(0, 4, 5), ids.narrow(0, 4, 5)}});
  const at::Tensor log_probabilities = at::log_softmax(model->logits(batch), -1);
  double want = 0.0;
  for (int64_t i = 0; i < 9; ++i) {
    const int64_t label = batch.labels[i].item<int64_t>();
    if (label >= 0) want -= log_probabilities[i][label].item<double>();
  }
  EXPECT_NEAR(model->loss(batch).item<double>(), want, 1e-10);
}

TEST(CausalLM, TokensOutsideTheVocabularyAreRefused) {
  const auto model = small_model();
  for (const int64_t bad : {int64_t{31}, int64_t{-1}}) {
    try {
      model->logits(pack_ids(at::tensor(std::vector<int64_t>{1, bad}, at::kLong)));
      FAIL() << "no error";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), "E-DATA-TOKEN-ID");
    }
  }
}

TEST(CausalLM, ACacheFedInPiecesEqualsOnePass) {
  const auto model = small_model();
  at::manual_seed(6);
  const at::Tensor ids = at::randint(0, 31, {12}, at::kLong);
  const at::Tensor whole = model->logits(pack_ids(ids));
  const int64_t* data = ids.const_data_ptr<int64_t>();
  nn::KvCache cache(model->cache_options());
  const int64_t sequence = cache.add();
  int64_t done = 0;
  for (const int64_t count : {5, 1, 1, 4, 1}) {
    const at::Tensor next = model->next_logits(cache, {{sequence, {data + done, data + done + count}}});
    done += count;
    EXPECT_LT(max_difference(next[0], whole[done - 1]), 1e-12) << "after " << done << " tokens";
    EXPECT_EQ(cache.length(sequence), done);
  }
}

struct Counter : nn::CallHook {
  explicit Counter(std::vector<std::string>* log, std::string name) : log(log), name(std::move(name)) {}
  at::Tensor run(const at::Tensor& input, const Forward& next) override {
    log->push_back("+" + name);
    at::Tensor output = next(input);
    log->push_back("-" + name);
    return output;
  }
  std::vector<std::string>* log;
  std::string name;
};

TEST(CausalLM, TheRootHookSurroundsTheBlocksAndTheLoss) {
  const auto model = small_model();
  const auto batch = pack_ids(at::tensor(std::vector<int64_t>{1, 2, 3}, at::kLong));
  const double plain = model->loss(batch).item<double>();
  std::vector<std::string> log;
  nn::add_call_hook(*model, std::make_shared<Counter>(&log, "root"));
  const auto blocks = model->blocks();
  for (size_t i = 0; i < blocks.size(); ++i) {
    nn::add_call_hook(*blocks[i], std::make_shared<Counter>(&log, "block" + std::to_string(i)));
  }
  EXPECT_EQ(model->loss(batch).item<double>(), plain);
  EXPECT_THAT(log, ElementsAre("+root", "+block0", "-block0", "+block1", "-block1", "-root"));
  EXPECT_EQ(names_of(*model).size(), 21U) << "hooks add no parameters";
}

TEST(Initialise, NormsAreOneAndBiasesZero) {
  const auto model = build_model(reference_folder("qwen2"), at::kFloat);
  load_weights(*model, *random_source(*model, 1));
  const auto parameters = model->named_parameters();
  EXPECT_TRUE(parameters["model.norm.weight"].eq(1).all().item<bool>());
  EXPECT_TRUE(parameters["model.layers.0.self_attn.q_proj.bias"].eq(0).all().item<bool>());
  EXPECT_NEAR(parameters["model.embed_tokens.weight"].std().item<double>(), 0.02, 0.004);
}

}  // namespace
}  // namespace tessera::models
