// Compares every family with Transformers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/core/error.h"
#include "tessera/generation/generate.h"
#include "tessera/parallel/activation_checkpoint.h"
#include "tessera/parallel/box_part.h"

#include "tests/models/reference_models.h"

namespace tessera::models {
namespace {

class Reference : public ::testing::TestWithParam<const char*> {
 protected:
  TensorFile file_{reference_folder(GetParam()) + "/reference.safetensors"};
};

// Returns the largest difference relative to the largest element, or to `least` if that is smaller.
double relative_difference(const at::Tensor& got, const at::Tensor& want, double least = 1e-3) {
  return max_difference(got, want) / std::max(want.abs().max().item<double>(), least);
}

void expect_logits(CausalLM& model, const TensorFile& file, const std::string& suffix, double tolerance) {
  const auto documents = reference_documents(file);
  const at::Tensor packed = model.logits(pack(documents));
  int64_t first = 0;
  for (size_t i = 0; i < documents.size(); ++i) {
    const at::Tensor want = file.get("logits" + suffix + "." + std::to_string(i));
    EXPECT_LT(max_difference(packed.narrow(0, first, want.size(0)), want), tolerance) << "document " << i;
    first += want.size(0);
  }
}

void expect_loss_and_gradients(CausalLM& model, const TensorFile& file, const std::string& suffix,
                               double tolerance) {
  const at::Tensor loss = model.loss(pack(reference_documents(file)));
  loss.backward();
  const double want = file.get("loss_sum" + suffix).item<double>();
  EXPECT_NEAR(loss.item<double>(), want, tolerance * want);
  int64_t checked = 0;
  const auto table = state_dict_adapter(model);
  for (const auto& item : model.named_parameters()) {
    if (!item.value().requires_grad()) continue;  // corrections of routers, scales of layers
    ASSERT_TRUE(item.value().grad().defined()) << item.key();
    const auto stored = [&](const std::string& name) { return file.get("grad" + suffix + "." + name); };
    const at::Tensor want =
        at::empty(item.value().sizes(), stored(table.find(item.key())->parts.front().name).options());
    for (const auto& overlaps : table.overlaps(item.key(), checkpoint::whole_box(want.sizes().vec()))) {
      for (const auto& overlap : overlaps) {
        overlap.view(want).copy_(parallel::box_part(stored(overlap.part->name), overlap.stored));
      }
    }
    // Biases of keys without positions have no gradient but roundings, which are larger in float32.
    const double least = tolerance > 1e-6 ? 2e-2 : 1e-3;
    EXPECT_LT(relative_difference(item.value().grad(), want, least), tolerance) << item.key();
    ++checked;
  }
  EXPECT_GT(checked, 10);
}

TEST_P(Reference, LogitsInFloat32) {
  const auto model = load_reference_model(GetParam(), at::kFloat);
  expect_logits(*model, file_, "", 1e-4);
}

TEST_P(Reference, LogitsInFloat32OverWeightsKeptAsStored) {
  const BaseModel base = BaseModel::open(reference_folder(GetParam()));
  const auto model = build_model(base.config(), at::kFloat);
  load_weights(*model, base.tensors(), true);
  expect_logits(*model, file_, "", 1e-4);
}

TEST_P(Reference, LossAndGradientsInFloat32) {
  const auto model = load_reference_model(GetParam(), at::kFloat);
  // Some families have the gradients in float64 alone.
  const bool has_own = file_.has("grad." + model->named_parameters().begin()->key());
  // Roundings of float32 add up to 1e-4 of a small gradient.
  expect_loss_and_gradients(*model, file_, has_own ? "" : "_f64", 3e-4);
}

TEST_P(Reference, LogitsLossAndGradientsInFloat64) {
  const auto model = load_reference_model(GetParam(), at::kDouble);
  if (file_.has("loss_sum_f64")) {
    expect_logits(*model, file_, "_f64", 1e-10);
    expect_loss_and_gradients(*model, file_, "_f64", 1e-10);
  } else {
    expect_logits(*model, file_, "", 1e-4);
  }
}

TEST_P(Reference, PackedDocumentsEqualDocumentsAlone) {
  const auto model = load_reference_model(GetParam(), at::kDouble);
  const auto documents = reference_documents(file_);
  const at::Tensor packed = model->logits(pack(documents));
  const at::Tensor alone =
      at::cat({model->logits(pack({documents[0]})), model->logits(pack({documents[1]}))});
  EXPECT_LT(max_difference(packed, alone), 1e-12);

  const double together = model->loss(pack(documents)).item<double>();
  const double apart =
      model->loss(pack({documents[0]})).item<double>() + model->loss(pack({documents[1]})).item<double>();
  EXPECT_NEAR(together, apart, 1e-12 * together);
}

// The balance loss is over both documents together.
TEST(RouterBalance, LossAndGradientsOfRouters) {
  for (const char* family : {"mixtral", "qwen2_moe", "qwen3_moe", "qwen3_next", "qwen3_5_moe"}) {
    SCOPED_TRACE(family);
    const TensorFile file(reference_folder(family) + "/reference.safetensors");
    for (const bool recomputes : {false, true}) {
      const auto model = load_reference_model(family, at::kDouble);
      model->set_router_aux_loss_coef(file.get("aux_coef").item<double>());
      for (const auto& block : model->blocks()) {
        if (recomputes) parallel::checkpoint_activations(*block);
      }
      const at::Tensor loss = model->loss(pack(reference_documents(file)));
      loss.backward();
      const double want = file.get("loss_sum_aux_f64").item<double>();
      EXPECT_NEAR(loss.item<double>(), want, 1e-10 * want);
      EXPECT_GT(std::abs(want - file.get("loss_sum_f64").item<double>()), 1.0);
      for (const auto& item : model->named_parameters()) {
        if (!file.has("grad_aux_f64." + item.key())) continue;
        EXPECT_LT(relative_difference(item.value().grad(), file.get("grad_aux_f64." + item.key())), 1e-10)
            << item.key();
      }
    }
  }
}

// Keys and values that several layers read, and the vectors of all layers, get their gradients from blocks
// that run again and from blocks that do not.
TEST(SharedValues, GradientsReachWhatMadeThemThroughRecomputation) {
  const TensorFile file(reference_folder("gemma4_shared") + "/reference.safetensors");
  // A bit for each block: all, those that give keys, those that read them, and every other one.
  for (const unsigned recomputed : {0b111111U, 0b000110U, 0b111000U, 0b101010U, 0b010101U}) {
    SCOPED_TRACE(recomputed);
    const auto model = load_reference_model("gemma4_shared", at::kDouble);
    ASSERT_EQ(model->blocks().size(), 6U);
    for (size_t block = 0; block < 6; ++block) {
      if ((recomputed >> block & 1U) != 0) parallel::checkpoint_activations(*model->blocks()[block]);
    }
    // The vectors of the layers have a gradient also where the hidden states before the first block have
    // none.
    if ((recomputed & 1U) != 0) model->embeddings().front()->weight.set_requires_grad(false);
    expect_loss_and_gradients(*model, file, "_f64", 1e-10);
  }
}

// Layers that read the keys and values of others have none in a cache.
TEST(SharedValues, ReadersHaveNoCache) {
  const auto model = load_reference_model("gemma4_shared", at::kFloat);
  const nn::KvCacheOptions options = model->cache_options();
  EXPECT_EQ(options.num_layers, 3);
  EXPECT_EQ(options.window, 0);
}

// Tests of all models but those with dynamic RoPE, whose keys in a cache become wrong as a sequence grows.
class ReferenceGeneration : public Reference {};

TEST_P(ReferenceGeneration, GreedyWithACache) {
  const auto model = load_reference_model(GetParam(), at::kFloat);
  for (const std::string i : {"0", "1"}) {
    const at::Tensor ids = file_.get("ids." + i), want = file_.get("greedy." + i);
    generation::GenerateOptions options;
    options.max_new_tokens = want.size(0);
    options.stop_ids = {-1};  // no token is a stop id
    const generation::Generation got = generation::generate(
        *model, {ids.const_data_ptr<int64_t>(), ids.const_data_ptr<int64_t>() + ids.numel()}, options);
    EXPECT_TRUE(at::equal(at::tensor(got.token_ids, at::kLong), want)) << "document " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Families, Reference,
                         ::testing::Values("llama2", "llama3", "llama_linear", "llama_dynamic", "llama_yarn",
                                           "llama_bias", "mistral", "mistral_sliding", "mixtral", "qwen2",
                                           "qwen2_5", "qwen2_sliding", "qwen3", "qwen3_sliding", "qwen3_moe",
                                           "qwen3_moe_options", "smollm2", "gpt2", "gpt2_options"),
                         [](const auto& info) { return std::string(info.param); });
INSTANTIATE_TEST_SUITE_P(
    DescribedFamilies, Reference,
    ::testing::Values("apertus", "apertus_relu2", "arcee", "bloom", "cohere", "cohere2", "deepseek_v2",
                      "deepseek_v2_lite", "deepseek_v3", "exaone4", "falcon_40b", "falcon_7b",
                      "falcon_options", "falcon_rw", "gemma", "gemma2", "gemma3", "gemma3_multimodal",
                      "gemma3_nested", "gemma4", "gemma4_moe", "gemma4_multimodal", "gemma4_shared",
                      "gemma4_shared_multimodal", "glm", "glm4", "glm4_moe", "glm4_moe_lite", "gpt_neox",
                      "gpt_neox_sequential", "gpt_oss", "gpt_oss_defaults", "gpt_oss_mxfp4", "gptj",
                      "granite", "granite_moe", "helium", "hunyuan", "lfm2", "lfm2_moe", "llama4",
                      "llama4_multimodal", "ministral", "ministral3", "mistral3_multimodal", "mistral4",
                      "mpt", "nemotron", "olmo", "olmo2", "olmo3", "olmoe", "opt", "opt_sums", "phi", "phi3",
                      "phi3_longrope", "qwen2_moe", "qwen3_5", "qwen3_5_moe", "qwen3_5_moe_multimodal",
                      "qwen3_5_multimodal", "qwen3_next", "seed_oss", "smollm3", "stablelm", "stablelm_norms",
                      "stablelm_parallel", "starcoder2"),
    [](const auto& info) { return std::string(info.param); });

INSTANTIATE_TEST_SUITE_P(Families, ReferenceGeneration,
                         ::testing::Values("llama2", "llama3", "llama_linear", "llama_yarn", "llama_bias",
                                           "mistral", "mistral_sliding", "mixtral", "qwen2", "qwen2_5",
                                           "qwen2_sliding", "qwen3", "qwen3_sliding", "qwen3_moe",
                                           "qwen3_moe_options", "smollm2", "gpt2", "gpt2_options"),
                         [](const auto& info) { return std::string(info.param); });
INSTANTIATE_TEST_SUITE_P(
    DescribedFamilies, ReferenceGeneration,
    ::testing::Values("apertus", "apertus_relu2", "arcee", "bloom", "cohere", "cohere2", "deepseek_v2",
                      "deepseek_v2_lite", "deepseek_v3", "exaone4", "falcon_40b", "falcon_7b",
                      "falcon_options", "falcon_rw", "gemma", "gemma2", "gemma3", "gemma3_multimodal",
                      "gemma3_nested", "gemma4", "gemma4_moe", "gemma4_multimodal", "gemma4_shared",
                      "gemma4_shared_multimodal", "glm", "glm4", "glm4_moe", "glm4_moe_lite", "gpt_neox",
                      "gpt_neox_sequential", "gpt_oss", "gpt_oss_defaults", "gpt_oss_mxfp4", "gptj",
                      "granite", "granite_moe", "helium", "hunyuan", "lfm2", "lfm2_moe", "llama4_multimodal",
                      "ministral", "ministral3", "mistral3_multimodal", "mistral4", "mpt", "nemotron", "olmo",
                      "olmo2", "olmo3", "olmoe", "opt", "opt_sums", "phi", "phi3", "qwen2_moe", "qwen3_5",
                      "qwen3_5_moe", "qwen3_5_moe_multimodal", "qwen3_5_multimodal", "qwen3_next", "seed_oss",
                      "smollm3", "stablelm", "stablelm_norms", "stablelm_parallel", "starcoder2"),
    [](const auto& info) { return std::string(info.param); });

TEST(DynamicRope, GenerationEndsWhereTheFrequenciesChange) {
  const auto model = load_reference_model("llama_dynamic", at::kFloat);
  generation::GenerateOptions options;
  options.max_new_tokens = 20;
  options.stop_ids = {-1};
  // Eight positions can be fed: five of the prompt and three of the new tokens.
  EXPECT_EQ(generation::generate(*model, {3, 4, 5, 6, 7}, options).token_ids.size(), 4U);
  EXPECT_THROW(generation::generate(*model, {3, 4, 5, 6, 7, 8, 9, 10, 11}, options), Error);
}

// Feeds the cache token by token, up to the model's last position: most tokens lie beyond the window, and
// most pages are freed.
TEST(SlidingWindow, ACacheGivesWhatWholeSequencesGive) {
  for (const char* family :
       {"mistral_sliding", "qwen2_sliding", "qwen3_sliding", "mixtral", "gemma4_shared"}) {
    SCOPED_TRACE(family);
    const auto model = load_reference_model(family, at::kDouble);
    const int64_t length = model->config().max_position_embeddings;
    at::manual_seed(5);
    const at::Tensor ids = at::randint(3, model->config().vocab_size, {length}, at::kLong);
    const at::Tensor whole = model->logits(pack_ids(ids));
    nn::KvCache cache(model->cache_options());
    const int64_t sequence = cache.add();
    for (int64_t at = 0, added = 7; at < length; at += added, added = at % 3 == 0 ? 2 : 1) {
      added = std::min(added, length - at);
      const int64_t* data = ids.const_data_ptr<int64_t>() + at;
      const at::Tensor next = model->next_logits(cache, {{sequence, {data, data + added}}});
      EXPECT_LT(max_difference(next[0], whole[at + added - 1]), 1e-11) << at;
    }
    // Qwen2's first layer sees everything.
    const bool all_layers_slide = cache.options().window > 0;
    const std::string name = family;
    EXPECT_EQ(all_layers_slide, name == "mistral_sliding" || name == "mixtral");
    EXPECT_EQ(cache.used_pages(), all_layers_slide ? 1 : nn::KvCache::pages_for(length));
  }
}

}  // namespace
}  // namespace tessera::models
