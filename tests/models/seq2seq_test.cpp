// Compares encoder-decoders with Transformers (tests/reference/make_seq2seq_reference.py).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/checkpoint/tied_weights.h"
#include "tessera/core/error.h"
#include "tessera/models/common/parallelize.h"
#include "tessera/models/encoder_decoder/encoder_decoder.h"
#include "tessera/models/parallelize_plan.h"
#include "tessera/nn/relative_bias.h"
#include "tessera/parallel/activation_checkpoint.h"
#include "tessera/parallel/box_part.h"
#include "tessera/peft/adapter_files.h"

#include "tests/models/bad_config.h"
#include "tests/models/reference_models.h"

namespace tessera::models {
namespace {

constexpr int64_t kDocuments = 3;

std::string seq2seq_folder(const std::string& name) {
  return testing::source_folder() + "/tests/reference/data/seq2seq/" + name;
}

std::shared_ptr<CausalLM> load_seq2seq(const std::string& name) {
  const BaseModel base = BaseModel::open(seq2seq_folder(name));
  const auto model = build_model(base.config(), at::kDouble);
  load_weights(*model, base.tensors());
  return model;
}

// Lays the documents [begin, end) of the file end to end, as rows of task: seq2seq: the tokens of the source,
// the start, and those of the target.
nn::TokenBatch pack_documents(const CausalLM& model, const TensorFile& file, int64_t begin, int64_t end) {
  nn::TokenBatch batch;
  std::vector<at::Tensor> ids, types, positions, labels;
  batch.document_starts = {0};
  for (int64_t document = begin; document < end; ++document) {
    const std::string number = "." + std::to_string(document);
    const at::Tensor source = file.get("source" + number), target = file.get("target" + number);
    const at::Tensor start = at::full({1}, model.config().decoder_start_token_id, at::kLong);
    ids.push_back(at::cat({source, start, target}));
    types.push_back(at::cat({at::zeros_like(source), at::ones_like(start), at::ones_like(target)}));
    labels.push_back(at::cat({at::full_like(source, -100), target, at::full({1}, -100, at::kLong)}));
    positions.push_back(at::arange(ids.back().size(0), at::kLong));
    batch.document_starts.push_back(batch.document_starts.back() + ids.back().size(0));
  }
  batch.input_ids = at::cat(ids);
  batch.type_ids = at::cat(types);
  batch.position_ids = at::cat(positions);
  batch.labels = at::cat(labels);
  return batch;
}

at::Tensor labelled_logits(CausalLM& model, const nn::TokenBatch& batch) {
  return model.logits(batch).index_select(0, batch.labels.ge(0).nonzero().squeeze(1));
}

at::Tensor wanted_logits(const TensorFile& file, const std::string& name) {
  std::vector<at::Tensor> all;
  for (int64_t document = 0; document < kDocuments; ++document)
    all.push_back(file.get(name + "." + std::to_string(document)));
  return at::cat(all);
}

class Seq2Seq : public ::testing::TestWithParam<const char*> {
 protected:
  TensorFile file_{seq2seq_folder(GetParam()) + "/reference.safetensors"};
  std::shared_ptr<CausalLM> model_ = load_seq2seq(GetParam());
};

TEST_P(Seq2Seq, LogitsLossAndGradientsInFloat64) {
  const nn::TokenBatch batch = pack_documents(*model_, file_, 0, kDocuments);
  EXPECT_LT(max_difference(labelled_logits(*model_, batch), wanted_logits(file_, "logits")), 1e-10);
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
      const at::Tensor want_grad = file_.get("grad." + table.find(item.key())->parts.front().name);
      const double largest = std::max(want_grad.abs().max().item<double>(), 1e-3);
      EXPECT_LT(max_difference(item.value().grad(), want_grad) / largest, 1e-9) << item.key();
      ++checked;
    }
    EXPECT_GT(checked, 15);
  }
}

TEST_P(Seq2Seq, PackedDocumentsEqualDocumentsAlone) {
  const at::Tensor packed = labelled_logits(*model_, pack_documents(*model_, file_, 0, kDocuments));
  std::vector<at::Tensor> alone;
  for (int64_t document = 0; document < kDocuments; ++document)
    alone.push_back(labelled_logits(*model_, pack_documents(*model_, file_, document, document + 1)));
  EXPECT_LT(max_difference(packed, at::cat(alone)), 1e-12);
}

// A row without labels and types, as an empty micro-batch has one, goes through all blocks.
TEST_P(Seq2Seq, AnAddedTokenReachesEveryParameter) {
  nn::TokenBatch batch;
  batch.input_ids = at::zeros({1}, at::kLong);
  batch.labels = at::full({1}, -100, at::kLong);
  batch.position_ids = at::zeros({1}, at::kLong);
  batch.document_starts = {0, 1};
  batch.is_added = at::ones({1}, at::kBool);
  model_->zero_grad();
  const at::Tensor loss = model_->loss(batch);
  EXPECT_EQ(loss.item<double>(), 0.0);
  loss.backward();
  for (const auto& item : model_->named_parameters()) {
    ASSERT_TRUE(item.value().grad().defined()) << item.key();
    EXPECT_EQ(item.value().grad().abs().max().item<double>(), 0.0) << item.key();
  }
}

// The encoder runs in the first pass of a sequence; later ones go on from the cache, in any batch.
TEST_P(Seq2Seq, GreedyDecodingWithACache) {
  nn::KvCache cache(model_->cache_options());
  std::vector<std::vector<int64_t>> made(kDocuments);
  std::vector<int64_t> sequences;
  const auto ids_of = [&](const std::string& name, size_t document) {
    const at::Tensor ids = file_.get(name + "." + std::to_string(document));
    return std::vector<int64_t>(ids.const_data_ptr<int64_t>(), ids.const_data_ptr<int64_t>() + ids.numel());
  };
  const auto take = [&](const std::vector<size_t>& documents, const std::vector<NewTokens>& batch) {
    const at::Tensor next = model_->next_logits(cache, batch).argmax(1);
    for (size_t i = 0; i < documents.size(); ++i)
      made[documents[i]].push_back(next[static_cast<int64_t>(i)].item<int64_t>());
  };
  for (size_t document = 0; document < kDocuments; ++document) sequences.push_back(cache.add());
  // The last document begins after the first two have their first token.
  take({0, 1}, {{sequences[0], ids_of("source", 0)}, {sequences[1], ids_of("source", 1)}});
  take({2, 0}, {{sequences[2], ids_of("source", 2)}, {sequences[0], {made[0].back()}}});
  for (size_t step = 0; step < 12; ++step) {
    std::vector<NewTokens> batch;
    for (size_t document : {0, 1, 2}) batch.push_back({sequences[document], {made[document].back()}});
    take({0, 1, 2}, batch);
  }
  for (size_t document = 0; document < kDocuments; ++document) {
    std::vector<int64_t> want = ids_of("greedy", document), got = made[document];
    got.resize(12);
    if (const auto end = std::ranges::find(got, 1); end != got.end()) got.erase(end, got.end());
    EXPECT_EQ(got, want) << document;
  }
}

INSTANTIATE_TEST_SUITE_P(Models, Seq2Seq, ::testing::Values("t5", "flan", "saved", "gelu", "mt5", "umt5"),
                         [](const auto& info) { return std::string(info.param); });

class Seq2SeqAdapter : public ::testing::TestWithParam<const char*> {};

TEST_P(Seq2SeqAdapter, OfPeftGivesItsLogitsAndIsWrittenAlike) {
  const std::string folder = seq2seq_folder(GetParam());
  const TensorFile file(folder + "/reference.safetensors");
  const BaseModel base = BaseModel::open(folder);
  const auto model = build_model(base.config(), at::kDouble);
  const auto table = state_dict_adapter(*model);
  peft::AdapterConfig config = peft::read_adapter_config(folder + "/adapter");
  const auto files = std::make_shared<const io::ModelFiles>(peft::open_adapter(folder + "/adapter"));
  const auto targets = peft::apply_adapter(*model, config, *files, model->tied_modules());
  const auto source = std::make_shared<checkpoint::SourceList>(
      std::vector<std::shared_ptr<const checkpoint::ParameterSource>>{
          peft::adapter_source(*model, targets, files), checkpoint::stored_source(base.tensors(), table)});
  load_weights(*model, *source);
  model->eval();
  const nn::TokenBatch batch = pack_documents(*model, file, 0, kDocuments);
  EXPECT_LT(max_difference(labelled_logits(*model, batch), wanted_logits(file, "logits_lora")), 1e-10);

  config.options.is_seq2seq = true;
  const auto plan =
      peft::adapter_folder(peft::adapter_table(*model, targets), config.options, targets, "base");
  const auto wanted = io::SafetensorsFile::open(folder + "/adapter/adapter_model.safetensors");
  ASSERT_EQ(plan.table.stored_tensors().size(), wanted.tensors().size());
  for (const auto& tensor : plan.table.stored_tensors()) {
    ASSERT_NE(wanted.find(tensor.name), nullptr) << tensor.name;
    EXPECT_EQ(wanted.find(tensor.name)->shape, tensor.shape) << tensor.name;
  }
  EXPECT_EQ(nlohmann::json::parse(plan.files[0].second)["task_type"], "SEQ_2_SEQ_LM");
}

INSTANTIATE_TEST_SUITE_P(Models, Seq2SeqAdapter, ::testing::Values("t5", "flan", "umt5"),
                         [](const auto& info) { return std::string(info.param); });

TEST(Seq2SeqModel, BucketsOfDistances) {
  const TensorFile file(seq2seq_folder("flan") + "/reference.safetensors");
  const at::Tensor distances = at::arange(-300, 301, at::kLong);
  EXPECT_TRUE(at::equal(nn::DistanceBuckets{}.of(distances), file.get("buckets.both")));
  EXPECT_TRUE(
      at::equal(nn::DistanceBuckets{.is_bidirectional = false}.of(distances), file.get("buckets.before")));
}

nlohmann::json small_json() {
  return {{"model_type", "t5"}, {"d_model", 8},   {"d_kv", 4},
          {"d_ff", 6},          {"num_heads", 2}, {"vocab_size", 31}};
}

std::shared_ptr<const EncoderDecoderConfig> parse(const nlohmann::json& json) {
  return std::dynamic_pointer_cast<const EncoderDecoderConfig>(
      parse_model_config(json.dump(), "config.json"));
}

TEST(Seq2SeqModel, DefaultsAreThoseOfTransformers) {
  const auto t5 = parse({{"model_type", "t5"}});
  EXPECT_EQ(t5->vocab_size, 32128);
  EXPECT_EQ(t5->hidden_size, 512);
  EXPECT_EQ(t5->head_dim, 64);
  EXPECT_EQ(t5->intermediate_size, 2048);
  EXPECT_EQ(t5->num_layers, 12) << "those of both stacks";
  EXPECT_EQ(t5->decoder_start_token_id, 0);
  EXPECT_EQ(t5->eos_token_ids, (std::vector<int64_t>{1}));
  EXPECT_TRUE(t5->tie_word_embeddings);
  EXPECT_NEAR(t5->parts.logit_scale, std::pow(512.0, -0.5), 1e-15);
  EXPECT_EQ(t5->parts.dropout, 0.1);
  for (const Stack* stack : {&t5->parts.encoder, &t5->parts.decoder}) {
    const nn::TransformerBlockOptions& block = stack->blocks.front();
    EXPECT_EQ(block.mixer_dropout, 0.1);
    EXPECT_EQ(block.mlp_dropout, 0.1);
    EXPECT_EQ(block.mlp_hidden_dropout, 0.1);
    EXPECT_EQ(block.attention.dropout, 0.1);
  }
  EXPECT_EQ(t5->parts.decoder.blocks.front().cross_attention->dropout, 0.1);
  EXPECT_EQ(t5->training_note, "");
  const auto mt5 = parse({{"model_type", "mt5"}});
  EXPECT_EQ(mt5->vocab_size, 250112);
  EXPECT_EQ(mt5->intermediate_size, 1024);
  EXPECT_EQ(mt5->num_heads, 6);
  EXPECT_EQ(mt5->parts.logit_scale, 1.0);
  EXPECT_EQ(mt5->parts.encoder.blocks.front().mlp.gate, "wi_0");
  const auto umt5 = parse({{"model_type", "umt5"}, {"tie_word_embeddings", false}});
  EXPECT_EQ(umt5->vocab_size, 250112);
  EXPECT_EQ(umt5->num_layers, 16);
  EXPECT_EQ(umt5->parts.logit_scale, t5->parts.logit_scale);
}

TEST(Seq2SeqModel, WhatWouldGiveOtherNumbersIsRefused) {
  for (const BadCase& bad :
       {BadCase{"decoder", {{"is_decoder", true}}, kUnsupported, "is_encoder_decoder"},
        BadCase{"stack", {{"is_encoder_decoder", false}}, kUnsupported, "a stack alone"},
        BadCase{"task", {{"architectures", {"T5ForTokenClassification"}}}, kUnsupported, "architectures"},
        BadCase{"encoder", {{"architectures", {"T5EncoderModel"}}}, kUnsupported, "architectures"},
        BadCase{"activation", {{"feed_forward_proj", "gated-mish"}}, kUnsupported, "'mish'"},
        BadCase{"odd", {{"relative_attention_num_buckets", 7}}, kConfig, "relative_attention_num_buckets"},
        BadCase{"near", {{"relative_attention_max_distance", 16}}, kConfig, "up to the distance 16"},
        BadCase{"start", {{"decoder_start_token_id", 31}}, kConfig, "decoder_start_token_id"},
        BadCase{"huge", {{"d_model", 1 << 30}, {"vocab_size", 1 << 30}}, kConfig, "2^44 elements"}}) {
    SCOPED_TRACE(bad.name);
    expect_refused(small_json(), bad, parse);
  }
}

TEST(Seq2SeqModel, LayoutsThatCannotRunAreRefused) {
  const auto model = build_model(*parse(small_json()), at::kFloat);
  EXPECT_THROW(tensor_parallel_plan(*model), Error);
  EXPECT_THROW(plan_pipeline(*model, 2, {}), Error);
  EXPECT_THROW(check_context_parallel(*model, 2), Error);
  EXPECT_NO_THROW(check_context_parallel(*model, 1));
  EXPECT_THROW(model->check_continues_texts("a chat"), Error);
}

TEST(Seq2SeqModel, DocumentsWithoutSidesAreRefused) {
  const auto model = load_seq2seq("gelu");
  const TensorFile file(seq2seq_folder("gelu") + "/reference.safetensors");
  const nn::TokenBatch good = pack_documents(*model, file, 0, 1);
  const auto expect = [&](const at::Tensor& types, const char* what) {
    nn::TokenBatch bad = good;
    bad.type_ids = types;
    try {
      model->loss(bad);
      FAIL() << what;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), "E-DATA-SEQ2SEQ");
      EXPECT_THAT(error.what(), ::testing::HasSubstr(what));
    }
  };
  expect({}, "do not tell sources from targets");
  expect(at::zeros_like(good.type_ids), "without a target");
  expect(at::ones_like(good.type_ids), "without a source");
  expect(good.type_ids.index_fill(0, at::tensor({good.type_ids.numel() - 1}), 0),
         "a source behind its target");
}

// Transformers reads from tie_word_embeddings whether T5 scales its logits, unless the file says that, too.
TEST(Seq2SeqModel, AnUntiedConfigKeepsTheScale) {
  nlohmann::json json = small_json();
  const auto untied = parse(nlohmann::json::parse(checkpoint::untied_config(json.dump())));
  EXPECT_FALSE(untied->tie_word_embeddings);
  EXPECT_EQ(untied->parts.logit_scale, parse(json)->parts.logit_scale);
  json["tie_word_embeddings"] = false;
  EXPECT_EQ(parse(json)->parts.logit_scale, 1.0);
}

}  // namespace
}  // namespace tessera::models
