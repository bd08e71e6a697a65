#include "tessera/models/common/quantize_layers.h"

#include <map>
#include <set>

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/device/device.h"
#include "tessera/io/ggml_quantize.h"
#include "tessera/models/common/load.h"
#include "tessera/models/llama/config.h"
#include "tessera/models/registry.h"
#include "tessera/nn/linear.h"
#include "tessera/parallel/box_part.h"

#include "tests/io/expect_error.h"

namespace tessera::models {
namespace {

using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

LlamaConfig config_of(const std::string& model_type) {
  LlamaConfig config;
  config.model_type = model_type;
  config.vocab_size = 40;
  config.hidden_size = 256;
  config.intermediate_size = 512;
  config.num_layers = 1;
  config.num_heads = 4;
  config.num_kv_heads = 2;
  config.head_dim = 64;
  config.rope.head_dim = 64;
  config.initializer_range = 0.1;
  if (model_type == "mixtral") {
    config.num_experts = 2;
    config.experts_per_token = 1;
    config.experts.are_sparse = {true};
    config.experts.size = 512;
  }
  return config;
}

// A model's random weights, whose matrices, of the layers or of the whole model, are stored in a ggml type.
class BlockTensors : public checkpoint::StoredTensors {
 public:
  BlockTensors(const CausalLM& model, io::GgmlType type, bool with_tables = false)
      : StoredTensors("files", specs_of(model)), type_(type), with_tables_(with_tables) {
    const auto random = random_source(model, 3);
    for (const io::TensorSpec& spec : tensors()) {
      const at::Tensor values = at::empty(spec.shape, on_host(at::kFloat));
      random->read(spec.name, checkpoint::whole_box(spec.shape), values);
      values_[spec.name] = values;
      if (!is_coded(spec.name)) continue;
      const io::BlockForm form = io::block_form(type);
      const at::Tensor blocks = at::empty({spec.shape[0], form.row_bytes(spec.shape[1])}, on_host(at::kByte));
      const int64_t count = values.numel() / form.elements;
      io::quantize_ggml(type, values.const_data_ptr<float>(), count, blocks.mutable_data_ptr());
      io::expand_blocks(form, blocks.const_data_ptr(), count, values.mutable_data_ptr<float>());
      blocks_[spec.name] = blocks;
    }
  }

  void read(const std::string& name, const parallel::Box& box, const at::Tensor& to) const override {
    to.copy_(parallel::box_part(values_.at(name), box));
  }
  std::optional<io::BlockForm> form(const std::string& name) const override {
    return is_coded(name) ? std::optional(io::block_form(type_)) : std::nullopt;
  }
  void read_blocks(const std::string& name, const parallel::Box& box, const at::Tensor& to) const override {
    const io::BlockForm form = io::block_form(type_);
    to.copy_(parallel::box_part(blocks_.at(name), {{box.offset[0], form.row_bytes(box.offset[1])},
                                                   {box.size[0], form.row_bytes(box.size[1])}}));
  }

 private:
  bool is_coded(const std::string& name) const {
    const bool is_matrix = name.find("norm") == std::string::npos;
    return is_matrix && (with_tables_ || name.find("layers.0.") != std::string::npos);
  }
  static std::vector<io::TensorSpec> specs_of(const CausalLM& model) {
    std::vector<io::TensorSpec> specs;
    for (const auto& item : model.named_parameters()) {
      specs.push_back({item.key(), DType::F32, item.value().sizes().vec()});
    }
    return specs;
  }

  io::GgmlType type_;
  bool with_tables_;
  std::map<std::string, at::Tensor> values_, blocks_;
};

std::set<std::string> coded_layers(const CausalLM& model) {
  std::set<std::string> names;
  for (const auto& item : model.named_modules()) {
    const auto* const linear = dynamic_cast<const nn::Linear*>(item.value().get());
    if (linear != nullptr && linear->form()) names.insert(item.key().substr(item.key().rfind('.') + 1));
  }
  return names;
}

TEST(QuantizeLayers, TakesTheBlocksOfFiles) {
  for (const io::GgmlType type : {io::GgmlType::Q8_0, io::GgmlType::Q4_K}) {
    const auto model = build_model(config_of("llama"), at::kFloat),
               dense = build_model(config_of("llama"), at::kFloat);
    const auto files = std::make_shared<BlockTensors>(*model, type);
    EXPECT_TRUE(holds_blocks(*files));
    const checkpoint::StateDictAdapter table = state_dict_adapter(*model);
    auto coded = quantize_layers(*model, table, files.get(), {});
    EXPECT_EQ(coded.size(), 7u);
    EXPECT_THAT(coded_layers(*model), UnorderedElementsAre("q_proj", "k_proj", "v_proj", "o_proj",
                                                           "gate_proj", "up_proj", "down_proj"));
    const auto values = checkpoint::stored_source(files, table);
    load_weights(*model, *checkpoint::coded_source(values, files, std::move(coded)));
    load_weights(*dense, *values);
    const at::NoGradGuard no_grad;
    const at::Tensor ids = at::arange(1, 30, at::kLong);
    const at::Tensor got = model->logits(pack_ids(ids)), want = dense->logits(pack_ids(ids));
    EXPECT_LT((got - want).norm().item<double>(), 1e-5 * want.norm().item<double>());
  }
}

// A table stays in its blocks, for the embedding and for a head of its own or a tied one.
TEST(QuantizeLayers, KeepsTheBlocksOfTablesIfAsked) {
  for (const bool is_tied : {false, true}) {
    SCOPED_TRACE(is_tied);
    LlamaConfig config = config_of("llama");
    config.tie_word_embeddings = is_tied;
    const auto model = build_model(config, at::kFloat), dense = build_model(config, at::kFloat);
    const auto files = std::make_shared<BlockTensors>(*model, io::GgmlType::Q8_0, true);
    const checkpoint::StateDictAdapter table = state_dict_adapter(*model);
    EXPECT_EQ(quantize_layers(*build_model(config, at::kFloat), table, files.get(), {}).size(), 7u);
    QuantizeOptions options;
    options.tables = true;
    auto coded = quantize_layers(*model, table, files.get(), options);
    EXPECT_EQ(coded.size(), is_tied ? 8u : 9u);
    EXPECT_EQ(model->hidden_type(), at::kFloat);
    EXPECT_EQ(model->head().weight().scalar_type(), at::kByte);
    const auto values = checkpoint::stored_source(files, table);
    load_weights(*model, *checkpoint::coded_source(values, files, std::move(coded)));
    load_weights(*dense, *values);
    const at::NoGradGuard no_grad;
    const at::Tensor ids = at::arange(1, 30, at::kLong);
    nn::TokenBatch batch = pack_ids(ids);
    batch.labels = at::arange(2, 31, at::kLong);
    const at::Tensor got = model->logits(batch), want = dense->logits(batch);
    EXPECT_LT((got - want).norm().item<double>(), 1e-5 * want.norm().item<double>());
    EXPECT_NEAR(model->loss(batch).item<double>(), dense->loss(batch).item<double>(), 1e-3);
  }
}

TEST(QuantizeLayers, LeavesOutHeadsRoutersAndWhatIsNamed) {
  QuantizeOptions options;
  options.kind = QuantizeOptions::Kind::FourBit;
  const auto quantized = [&](const std::string& type) {
    const auto model = build_model(config_of(type), at::kFloat);
    quantize_layers(*model, state_dict_adapter(*model), nullptr, options);
    return coded_layers(*model);
  };
  EXPECT_THAT(quantized("mixtral"), UnorderedElementsAre("q_proj", "k_proj", "v_proj", "o_proj"));
  options.experts = true;
  EXPECT_THAT(quantized("mixtral"),
              UnorderedElementsAre("q_proj", "k_proj", "v_proj", "o_proj", "w1", "w2", "w3"));
  options.skipped = {"o_proj", "model.layers.0.mlp"};
  EXPECT_THAT(quantized("llama"), UnorderedElementsAre("q_proj", "k_proj", "v_proj"));
}

TEST(QuantizeLayers, CutsBlocksForTensorParallelRanks) {
  QuantizeOptions options;
  options.kind = QuantizeOptions::Kind::EightBit;
  options.tensor_parallel_size = 2;
  const auto model = build_model(config_of("llama"), at::kFloat);
  const auto coded = quantize_layers(*model, state_dict_adapter(*model), nullptr, options);
  EXPECT_EQ(coded.at("model.layers.0.self_attn.o_proj.weight").form.elements, 64) << "a head";
  EXPECT_EQ(coded.at("model.layers.0.mlp.down_proj.weight").form.elements, 256);
  const auto other = build_model(config_of("llama"), at::kFloat);
  const BlockTensors files(*other, io::GgmlType::Q4_K);
  testing::expect_error(ErrorKind::Config, {"o_proj", "Q4_K", "heads of 64 elements", "256"},
                        [&] { quantize_layers(*other, state_dict_adapter(*other), &files, options); });
}

}  // namespace
}  // namespace tessera::models
