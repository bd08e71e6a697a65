#include "tessera/checkpoint/layer_parts.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tessera/checkpoint/parameter_source.h"
#include "tessera/nn/attention.h"
#include "tessera/nn/sparse_mlp.h"
#include "tessera/parallel/box_part.h"

#include "tests/checkpoint/random_boxes.h"

namespace tessera::checkpoint {
namespace {

constexpr int64_t kHidden = 6, kHeadDim = 2;

// A model of one attention with a single projection for q, k and v, whose matrices are stored transposed.
struct Model {
  Model(int64_t heads, int64_t kv_heads) : group(heads / kv_heads), kv_heads(kv_heads) {
    nn::AttentionOptions options{.hidden_size = kHidden,
                                 .num_heads = heads,
                                 .num_kv_heads = kv_heads,
                                 .head_dim = kHeadDim,
                                 .qkv_bias = true};
    options.qkv = "qkv";
    attention = std::make_shared<nn::Attention>(options, 0, at::kDouble);
    attention->qkv_proj->set_stored_transposed();
    const LayerParts parts(*attention);
    std::vector<StoredParameter> entries;
    for (const auto& item : attention->named_parameters()) {
      entries.push_back(
          {item.key(), item.value().sizes().vec(), parts.of(item.value(), item.key(), {"alias"})});
    }
    table = StateDictAdapter(std::move(entries));
  }
  int64_t rows() const { return (group + 2) * kv_heads * kHeadDim; }

  int64_t group, kv_heads;
  std::shared_ptr<nn::Attention> attention;
  StateDictAdapter table;
};

// The projection's rows lie head by head in the layer, and q, k, v one after the other in the file.
TEST(LayerParts, OfOneProjectionAreItsHeads) {
  const Model model(4, 2);
  const auto check = [](const at::Tensor& stored, const at::Tensor& got) {
    // q has 4 heads of 2 rows, k and v 2 each; the layer has q0 q1 k0 v0, q2 q3 k1 v1.
    const at::Tensor rows = at::tensor({0, 1, 2, 3, 8, 9, 12, 13, 4, 5, 6, 7, 10, 11, 14, 15}, at::kLong);
    EXPECT_TRUE(at::equal(got, stored.index_select(0, rows)));
  };
  const at::Tensor weight = at::rand({16, kHidden}, at::kDouble), bias = at::rand({16}, at::kDouble);
  const auto source = stored_source(
      std::make_shared<testing::TensorsInMemory>(testing::Tensors{
          {"qkv.weight", weight.t().contiguous()}, {"alias", bias}, {"o_proj.weight", at::rand({6, 8})}}),
      model.table);
  at::Tensor got = at::empty({16, kHidden}, at::kDouble);
  source->read("qkv.weight", whole_box({16, kHidden}), got);
  check(weight, got);
  got = at::empty({16}, at::kDouble);
  source->read("qkv.bias", whole_box({16}), got);
  check(bias, got);
}

TEST(LayerParts, AnyBoxIsReadTogetherAsOneByOne) {
  testing::RandomBoxes random;
  for (int round = 0; round < 60; ++round) {
    const int64_t kv_heads = random.in(1, 4);
    const Model model(kv_heads * random.in(1, 3), kv_heads);
    const at::Tensor stored = at::rand({kHidden, model.rows()}, at::kDouble);
    const auto files = std::make_shared<testing::TensorsInMemory>(testing::Tensors{{"qkv.weight", stored}});
    const parallel::Box box = random.box({model.rows(), kHidden});
    const at::Tensor want = at::empty(box.size, at::kDouble), got = at::empty(box.size, at::kFloat);
    for (const auto& overlaps : model.table.overlaps("qkv.weight", box)) {
      for (const auto& overlap : overlaps) {
        overlap.view(want).copy_(parallel::box_part(stored, overlap.stored));
      }
    }
    stored_source(files, model.table)->read("qkv.weight", box, got);
    ASSERT_TRUE(at::equal(got, want.to(at::kFloat)));
  }
}

// Files may hold the matrices of all experts in one tensor, and their biases in another.
TEST(LayerParts, OfAnExpertAreOneOfAStack) {
  testing::RandomBoxes random;
  for (const bool are_transposed : {false, true}) {
    SCOPED_TRACE(are_transposed);
    nn::SparseMLPOptions options{.num_experts = 3, .experts_per_token = 1};
    options.expert = {
        .hidden_size = kHidden, .intermediate_size = 4, .bias = true, .gate_up = "gate_up_proj"};
    options.expert.is_stored_in_turns = true;
    options.stacks = {.gate_up = "in.weight",
                      .down = "out.weight",
                      .gate_up_bias = "in.bias",
                      .down_bias = "out.bias",
                      .are_transposed = are_transposed};
    const auto root = std::make_shared<torch::nn::Module>("root");
    root->register_module("mlp", std::make_shared<nn::SparseMLP>(options, at::kDouble));
    const LayerParts parts(*root);
    std::vector<StoredParameter> entries;
    for (const auto& item : root->named_parameters())
      entries.push_back({item.key(), item.value().sizes().vec(), parts.of(item.value(), item.key())});
    const StateDictAdapter table(std::move(entries));
    const at::Tensor weights = at::rand({3, 8, kHidden}, at::kDouble), biases = at::rand({3, 8}, at::kDouble);
    const auto source =
        stored_source(std::make_shared<testing::TensorsInMemory>(testing::Tensors{
                          {"mlp.in.weight", are_transposed ? weights.transpose(1, 2).contiguous() : weights},
                          {"mlp.in.bias", biases}}),
                      table);
    for (int64_t e = 0; e < 3; ++e) {
      const std::string layer = "mlp.experts." + std::to_string(e) + ".gate_up_proj.";
      for (int round = 0; round < 20; ++round) {
        const parallel::Box box = random.box({8, kHidden}), rows = random.box({8});
        const at::Tensor weight = at::empty(box.size, at::kDouble), bias = at::empty(rows.size, at::kDouble);
        source->read(layer + "weight", box, weight);
        source->read(layer + "bias", rows, bias);
        ASSERT_TRUE(at::equal(weight, parallel::box_part(weights[e], box)));
        ASSERT_TRUE(at::equal(bias, parallel::box_part(biases[e], rows)));
      }
    }
  }
}

TEST(LayerParts, OtherParametersAreAsTheyAre) {
  const Model model(2, 2);
  const std::vector<StoredPart>& parts = model.table.find("o_proj.weight")->parts;
  ASSERT_EQ(parts.size(), 1U);
  EXPECT_FALSE(parts[0].is_transposed);
  EXPECT_EQ(parts[0].box, whole_box({6, 4}));
  EXPECT_EQ(parts[0].aliases, std::vector<std::string>{"alias"});
}

}  // namespace
}  // namespace tessera::checkpoint
