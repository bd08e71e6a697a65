// Compares masked language models with Transformers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/core/error.h"
#include "tessera/nn/output_head.h"
#include "tessera/parallel/activation_checkpoint.h"
#include "tessera/parallel/box_part.h"

#include "tests/models/bad_config.h"
#include "tests/models/reference_models.h"

namespace tessera::models {
namespace {

constexpr int64_t kTexts = 3;

std::string masked_folder(const std::string& name) {
  return testing::source_folder() + "/tests/reference/data/masked_lm/" + name;
}

std::shared_ptr<CausalLM> load_masked(const std::string& name) {
  const BaseModel base = BaseModel::open(masked_folder(name)).as_masked_lm();
  const auto model = build_model(base.config(), at::kDouble);
  load_weights(*model, base.tensors());
  return model;
}

// Lays all texts of the file end to end.
nn::TokenBatch pack_texts(const TensorFile& file) {
  nn::TokenBatch batch;
  std::vector<at::Tensor> ids, positions, labels;
  batch.document_starts = {0};
  for (int64_t text = 0; text < kTexts; ++text) {
    ids.push_back(file.get("ids." + std::to_string(text)));
    labels.push_back(file.get("labels." + std::to_string(text)));
    positions.push_back(at::arange(ids.back().size(0), at::kLong));
    batch.document_starts.push_back(batch.document_starts.back() + ids.back().size(0));
  }
  batch.input_ids = at::cat(ids);
  batch.position_ids = at::cat(positions);
  batch.labels = at::cat(labels);
  return batch;
}

class MaskedModels : public ::testing::TestWithParam<const char*> {};

TEST_P(MaskedModels, LogitsLossAndGradientsInFloat64) {
  const TensorFile file(masked_folder(GetParam()) + "/reference.safetensors");
  const auto model = load_masked(GetParam());
  const nn::TokenBatch batch = pack_texts(file);
  std::vector<at::Tensor> logits;
  for (int64_t text = 0; text < kTexts; ++text) logits.push_back(file.get("logits." + std::to_string(text)));
  EXPECT_LT(max_difference(model->logits(batch), at::cat(logits)), 1e-10);
  for (const bool recomputes : {false, true}) {
    for (const auto& block : model->blocks()) {
      if (recomputes) parallel::checkpoint_activations(*block);
    }
    model->zero_grad();
    const at::Tensor loss = model->loss(batch);
    const double want = file.get("loss").item<double>();
    EXPECT_NEAR(loss.item<double>(), want, 1e-10 * want);
    loss.backward();
    const auto table = state_dict_adapter(*model);
    int64_t checked = 0;
    for (const auto& item : model->named_parameters()) {
      ASSERT_TRUE(item.value().grad().defined()) << item.key();
      const at::Tensor stored = file.get("grad." + table.find(item.key())->parts.front().name);
      const at::Tensor expected = at::empty(item.value().sizes(), stored.options());
      for (const auto& overlaps : table.overlaps(item.key(), checkpoint::whole_box(expected.sizes().vec()))) {
        for (const auto& overlap : overlaps)
          overlap.view(expected).copy_(parallel::box_part(stored, overlap.stored));
      }
      const double largest = std::max(expected.abs().max().item<double>(), 1e-3);
      EXPECT_LT(max_difference(item.value().grad(), expected) / largest, 1e-9) << item.key();
      ++checked;
    }
    EXPECT_GT(checked, 20);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, MaskedModels,
                         ::testing::Values("bert", "roberta", "distilbert", "modernbert"),
                         [](const auto& info) { return std::string(info.param); });

TEST(MaskedModel, ItsFilesAreThoseOfAnyHead) {
  const BaseModel base = BaseModel::open(masked_folder("bert"));
  EXPECT_FALSE(base.config().is_masked_lm) << "the files are those of pre-training";
  const BaseModel masked = base.as_masked_lm();
  EXPECT_THAT(masked.files().config, ::testing::HasSubstr("BertForMaskedLM"));
  EXPECT_TRUE(check_tensors(*build_model(masked.config(), at::kFloat), *masked.tensors()).empty());
  // A classifier has the body alone.
  const BaseModel other =
      BaseModel::open(testing::source_folder() + "/tests/reference/data/classifiers/roberta").as_masked_lm();
  const auto model = build_model(other.config(), at::kFloat);
  EXPECT_THROW(check_tensors(*model, *other.tensors()), Error);
  EXPECT_THAT(check_tensors(*model, *other.tensors(), /*takes_new_head=*/true),
              ::testing::UnorderedElementsAre("lm_head.bias", "lm_head.dense.bias", "lm_head.dense.weight",
                                              "lm_head.layer_norm.bias", "lm_head.layer_norm.weight"));
  EXPECT_THROW(BaseModel::open(reference_folder("llama3")).as_masked_lm(), Error);
  EXPECT_THROW(model->cache_options(), Error);
  EXPECT_THROW(model->check_continues_texts("scoring"), Error);
}

TEST(MaskedModel, WhatWouldGiveOtherNumbersIsRefused) {
  const std::pair<const char*, BadCase> cases[] = {
      {"roberta", {"projection", {{"tie_word_embeddings", false}}, kUnsupported, "tie_word_embeddings"}},
      {"modernbert",
       {"activation", {{"classifier_activation", "tanh"}}, kUnsupported, "classifier_activation"}}};
  for (const auto& [name, bad] : cases) {
    SCOPED_TRACE(bad.name);
    const std::string file = masked_folder(name) + "/config.json";
    const nlohmann::json config = nlohmann::json::parse(io::JsonReader::read_text(file));
    expect_refused(config, bad, [&](const nlohmann::json& json) {
      build_model(*parse_model_config(json.dump(), file), at::kFloat);
    });
  }
}

}  // namespace
}  // namespace tessera::models
