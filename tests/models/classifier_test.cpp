// Compares classifiers with Transformers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/core/error.h"
#include "tessera/parallel/activation_checkpoint.h"
#include "tessera/parallel/box_part.h"

#include "tests/models/bad_config.h"
#include "tests/models/reference_models.h"

namespace tessera::models {
namespace {

constexpr int64_t kTexts = 3;

std::string classifier_folder(const std::string& name) {
  return testing::source_folder() + "/tests/reference/data/classifiers/" + name;
}

std::shared_ptr<CausalLM> load_classifier(const std::string& name) {
  const BaseModel base = BaseModel::open(classifier_folder(name));
  const auto model = build_model(base.config(), at::kDouble);
  load_weights(*model, base.tensors());
  return model;
}

// Lays the texts [begin, end) of the file end to end.
nn::TokenBatch pack_texts(const CausalLM& model, const TensorFile& file, int64_t begin, int64_t end) {
  nn::TokenBatch batch;
  std::vector<at::Tensor> ids, types, positions, labels, targets;
  batch.document_starts = {0};
  for (int64_t text = begin; text < end; ++text) {
    const std::string number = "." + std::to_string(text);
    ids.push_back(file.get("ids" + number));
    const int64_t size = ids.back().size(0);
    types.push_back(file.has("types" + number) ? file.get("types" + number) : at::zeros_like(ids.back()));
    positions.push_back(at::arange(size, at::kLong));
    labels.push_back(at::full({size}, -100, at::kLong));
    const at::Tensor target = file.get("target" + number);
    for (int64_t i = 0; model.config().tells_tokens() && i < size; ++i) {
      if (target[i].item<int64_t>() < 0) continue;
      labels.back()[i] = std::ssize(targets);
      targets.push_back(target[i].to(at::kDouble).view({1}));
    }
    if (!model.config().tells_tokens()) {
      labels.back()[model.config().is_encoder ? 0 : size - 1] = text - begin;
      targets.push_back(target.to(at::kDouble).flatten());
    }
    batch.document_starts.push_back(batch.document_starts.back() + size);
  }
  batch.input_ids = at::cat(ids);
  batch.type_ids = at::cat(types);
  batch.position_ids = at::cat(positions);
  batch.labels = at::cat(labels);
  batch.targets = at::stack(targets);
  return batch;
}

class Classifiers : public ::testing::TestWithParam<const char*> {
 protected:
  TensorFile file_{classifier_folder(GetParam()) + "/reference.safetensors"};
  std::shared_ptr<CausalLM> model_ = load_classifier(GetParam());
};

TEST_P(Classifiers, LogitsLossAndGradientsInFloat64) {
  const nn::TokenBatch batch = pack_texts(*model_, file_, 0, kTexts);
  const bool of_tokens = model_->config().tells_tokens();
  const at::Tensor logits = model_->logits(batch);
  const at::Tensor read = batch.labels.ge(0).nonzero().squeeze(1);
  for (int64_t text = 0; text < kTexts; ++text) {
    const int64_t start = batch.document_starts[text], end = batch.document_starts[text + 1];
    const at::Tensor own =
        of_tokens ? logits.narrow(0, start, end - start) : logits[read[text].item<int64_t>()];
    EXPECT_LT(max_difference(own, file_.get("logits." + std::to_string(text))), 1e-10) << text;
  }
  for (const bool recomputes : {false, true}) {
    for (const auto& block : model_->blocks()) {
      if (recomputes) parallel::checkpoint_activations(*block);
    }
    model_->zero_grad();
    const at::Tensor loss = model_->loss(batch);
    const double want = file_.get("loss").item<double>();
    EXPECT_NEAR(loss.item<double>(), want, 1e-10 * want);
    loss.backward();
    const auto table = state_dict_adapter(*model_);
    int64_t checked = 0;
    for (const auto& item : model_->named_parameters()) {
      ASSERT_TRUE(item.value().grad().defined()) << item.key();
      const at::Tensor stored = file_.get("grad." + table.find(item.key())->parts.front().name);
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

TEST_P(Classifiers, PackedTextsEqualTextsAlone) {
  const at::Tensor packed = model_->logits(pack_texts(*model_, file_, 0, kTexts));
  std::vector<at::Tensor> alone;
  double sum = 0.0;
  for (int64_t text = 0; text < kTexts; ++text) {
    const nn::TokenBatch one = pack_texts(*model_, file_, text, text + 1);
    alone.push_back(model_->logits(one));
    sum += model_->loss(one).item<double>();
  }
  EXPECT_LT(max_difference(packed, at::cat(alone)), 1e-12);
  EXPECT_NEAR(model_->loss(pack_texts(*model_, file_, 0, kTexts)).item<double>(), sum, 1e-12 * sum);
}

INSTANTIATE_TEST_SUITE_P(Models, Classifiers,
                         ::testing::Values("bert", "bert_multi", "bert_number", "roberta", "distilbert",
                                           "modernbert", "llama_score", "gpt2_score", "bert_tokens",
                                           "roberta_tokens", "distilbert_tokens", "modernbert_tokens",
                                           "llama_tokens", "gpt2_tokens"),
                         [](const auto& info) { return std::string(info.param); });

TEST(ClassifierConfig, LabelsAndProblems) {
  const auto read = [](const char* name) {
    return *read_model_config(classifier_folder(name))->classification;
  };
  EXPECT_EQ(read("bert").labels, (std::vector<std::string>{"no", "yes", "maybe"}));
  EXPECT_EQ(read("bert").problem, ProblemType::SingleLabel);
  EXPECT_EQ(read("bert_multi").problem, ProblemType::MultiLabel);
  EXPECT_EQ(read("bert_number").problem, ProblemType::Regression);
  EXPECT_EQ(read("roberta").labels, (std::vector<std::string>{"LABEL_0", "LABEL_1"}));
  EXPECT_EQ(read_model_config(classifier_folder("roberta"))->document_bound->tokens, 16);
}

TEST(ClassifierConfig, WhatWouldGiveOtherNumbersIsRefused) {
  const std::pair<const char*, BadCase> cases[] = {
      {"bert", {"decoder", {{"is_decoder", true}}, kUnsupported, "is_decoder"}},
      {"bert", {"positions", {{"position_embedding_type", "relative_key"}}, kUnsupported, "relative_key"}},
      {"bert", {"activation", {{"hidden_act", "xielu"}}, kUnsupported, "hidden_act"}},
      {"bert", {"problem", {{"problem_type", "ranking"}}, kConfig, "problem_type"}},
      {"bert", {"labels", {{"id2label", {{"1", "a"}, {"0", nullptr}}}}, kConfig, "id2label"}},
      {"distilbert", {"heads", {{"n_heads", 5}}, kConfig, "dim"}},
      {"modernbert", {"pooling", {{"classifier_pooling", "mean"}}, kUnsupported, "classifier_pooling"}},
      {"llama_score",
       {"task", {{"architectures", {"LlamaForQuestionAnswering"}}}, kUnsupported, "architectures"}}};
  for (const auto& [name, bad] : cases) {
    SCOPED_TRACE(bad.name);
    const std::string file = classifier_folder(name) + "/config.json";
    nlohmann::json config = nlohmann::json::parse(io::JsonReader::read_text(file));
    // merge_patch() would leave the other labels.
    if (bad.patch.contains("id2label")) config.erase("id2label");
    expect_refused(config, bad, [&](const nlohmann::json& json) { parse_model_config(json.dump(), file); });
  }
  nlohmann::json masked =
      nlohmann::json::parse(io::JsonReader::read_text(classifier_folder("bert") + "/config.json"));
  masked["architectures"] = {"BertForPreTraining"};
  const auto config = parse_model_config(masked.dump(), "config.json");
  EXPECT_FALSE(config->classification);
  EXPECT_THROW(build_model(*config, at::kFloat), Error);
}

TEST(ClassifierConfig, AnotherModelBecomesAClassifier) {
  const Classification classes{ProblemType::SingleLabel, {"a", "b"}};
  for (const char* family : {"llama3", "gpt2"}) {
    const BaseModel base = BaseModel::open(reference_folder(family));
    const BaseModel made = base.as_classifier(classes);
    EXPECT_EQ(made.config().classification->labels, classes.labels);
    const auto model = build_model(made.config(), at::kFloat);
    check_tensors(*model, *made.tensors(), /*takes_new_head=*/true);
    EXPECT_THROW(check_tensors(*model, *made.tensors()), Error) << "a head without values";
    EXPECT_EQ(head_modules(*model, nullptr), (std::vector<std::string>{"score"}));
    EXPECT_THAT(made.files().config, ::testing::HasSubstr("\"pad_token_id\": 2"));
  }
  EXPECT_THROW(BaseModel::open(reference_folder("granite")).as_classifier(classes), Error);
  const Classification of_tokens{ProblemType::Tokens, {"a", "b"}};
  EXPECT_THROW(BaseModel::open(reference_folder("olmo2")).as_classifier(of_tokens), Error);
  const BaseModel tagger = BaseModel::open(reference_folder("gpt2")).as_classifier(of_tokens);
  EXPECT_EQ(head_modules(*build_model(tagger.config(), at::kFloat), nullptr),
            (std::vector<std::string>{"classifier"}));
  EXPECT_THAT(tagger.files().config, ::testing::HasSubstr("GPT2ForTokenClassification"));
  EXPECT_THROW(BaseModel::open(reference_folder("gemma3_multimodal")).as_classifier(classes), Error);
  const auto bert = load_classifier("bert");
  EXPECT_EQ(head_modules(*bert, nullptr), (std::vector<std::string>{"bert.pooler.dense", "classifier"}));
}

}  // namespace
}  // namespace tessera::models
