#include "tessera/ops/attention.h"

#include <limits>
#include <string>
#include <vector>

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "tessera/core/error.h"

#include "tests/testing/gradcheck.h"

namespace tessera::ops {
namespace {

using namespace checks;

constexpr double kScale = 0.3;

// Returns plain attention in which `allowed`, [queries, keys], says which pairs see each other.
at::Tensor masked_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                            const at::Tensor& allowed) {
  const int64_t group = q.size(1) / k.size(1);
  const at::Tensor keys = k.repeat_interleave(group, 1).transpose(0, 1),
                   values = v.repeat_interleave(group, 1).transpose(0, 1);
  const at::Tensor scores = at::matmul(q.transpose(0, 1), keys.transpose(1, 2)) * kScale;
  const at::Tensor masked =
      scores.masked_fill(allowed.logical_not(), -std::numeric_limits<double>::infinity());
  return at::matmul(at::softmax(masked, -1), values).transpose(0, 1);
}

at::Tensor same_document(const std::vector<int64_t>& starts) {
  at::Tensor allowed = at::zeros({starts.back(), starts.back()}, at::kBool);
  for (size_t i = 0; i + 1 < starts.size(); ++i) {
    const int64_t length = starts[i + 1] - starts[i];
    allowed.narrow(0, starts[i], length)
        .narrow(1, starts[i], length)
        .copy_(at::ones({length, length}, at::kBool).tril());
  }
  return allowed;
}

Op fused_attention(const std::vector<int64_t>& starts) {
  return [starts](const Inputs& in) { return document_attention(in[0], in[1], in[2], starts, {kScale}); };
}
Op attention_by_formula(const std::vector<int64_t>& starts) {
  return [starts](const Inputs& in) { return masked_attention(in[0], in[1], in[2], same_document(starts)); };
}

Inputs make_attention_inputs(int64_t tokens, int64_t heads, int64_t kv_heads, int64_t head_dim,
                             uint64_t seed) {
  return {random_tensor({tokens, heads, head_dim}, seed),
          random_tensor({tokens, kv_heads, head_dim}, seed + 1),
          random_tensor({tokens, kv_heads, head_dim}, seed + 2)};
}

TEST(AttentionTest, GradientsMatchCentralDifferences) {
  Inputs in = make_attention_inputs(6, 4, 2, 3, 1);
  for (at::Tensor& tensor : in) tensor = trained(tensor);
  gradcheck(fused_attention({0, 1, 4, 6}), in);
}

TEST(AttentionTest, EqualsTheFormulaForEverySubsetOfGradients) {
  const std::vector<std::vector<int64_t>> packings = {
      {0, 11}, {0, 1}, {0, 5, 10}, {0, 1, 2, 3}, {0, 3, 3, 4, 9}, {0, 4, 8, 12, 15}, {0, 0, 7, 7}};
  for (const auto& starts : packings) {
    for (const auto& [heads, kv_heads] : std::vector<std::pair<int64_t, int64_t>>{{3, 3}, {6, 2}, {5, 1}}) {
      SCOPED_TRACE(at::IntArrayRef(starts));
      SCOPED_TRACE(heads);
      expect_same_for_subsets(fused_attention(starts), attention_by_formula(starts),
                              make_attention_inputs(starts.back(), heads, kv_heads, 7, 2), 3, 1e-12);
    }
  }
}

TEST(AttentionTest, LongDocumentsCrossTheKernelsBlocks) {
  const std::vector<int64_t> starts = {0, 700, 701, 1100};
  Inputs in = make_attention_inputs(1100, 4, 2, 16, 3);
  for (at::Tensor& tensor : in) tensor = trained(tensor);
  expect_same(fused_attention(starts), attention_by_formula(starts), in, 1e-11);
}

TEST(AttentionTest, TakesAGradientThatIsExpandedOverTheTokens) {
  const Inputs in = make_attention_inputs(9, 4, 2, 8, 5);
  const at::Tensor weights = random_tensor({4, 8}, 6);
  const auto summed = [&](const Op& op) {
    return [&weights, op](const Inputs& inputs) { return (op(inputs).sum(0) * weights).sum(); };
  };
  Inputs wanted = in;
  for (at::Tensor& tensor : wanted) tensor = trained(tensor);
  expect_same(summed(fused_attention({0, 9})), summed(attention_by_formula({0, 9})), wanted, 1e-12);
}

TEST(AttentionTest, NoTokens) {
  for (const auto& starts : std::vector<std::vector<int64_t>>{{0}, {0, 0}, {0, 0, 0}}) {
    Inputs in = make_attention_inputs(0, 4, 2, 8, 4);
    for (at::Tensor& tensor : in) tensor = trained(tensor);
    const Evaluation result = evaluate(fused_attention(starts), in);
    EXPECT_EQ(result.output.sizes(), at::IntArrayRef({0, 4, 8}));
    EXPECT_EQ(result.gradients[1].sizes(), at::IntArrayRef({0, 2, 8}));
  }
}

TEST(AttentionTest, TakesSlicesOfOneFusedProjection) {
  const std::vector<int64_t> starts = {0, 4, 9, 14};
  const at::Tensor qkv = random_tensor({14, 8, 6}, 5);
  expect_same(fused_attention(starts), attention_by_formula(starts),
              {trained(qkv.narrow(1, 0, 4)), trained(qkv.narrow(1, 4, 2)), trained(qkv.narrow(1, 6, 2))},
              1e-12);
  Inputs in = make_attention_inputs(14, 4, 2, 6, 6);
  for (at::Tensor& tensor : in) tensor = trained(transposed_in_memory(tensor));
  expect_same(fused_attention(starts), attention_by_formula(starts), in, 1e-12);
}

TEST(AttentionTest, OtherDocumentsDoNotMatterToTheBit) {
  const Inputs in = make_attention_inputs(20, 4, 2, 8, 7);
  const at::Tensor whole = fused_attention({0, 7, 20})(in);
  Inputs changed = in;
  for (at::Tensor& tensor : changed) {
    tensor = tensor.clone();
    tensor.narrow(0, 0, 7).fill_(NAN);
  }
  EXPECT_TRUE(at::equal(fused_attention({0, 7, 20})(changed).narrow(0, 7, 13), whole.narrow(0, 7, 13)));
}

TEST(AttentionTest, Float32AndBfloat16AreNearFloat64) {
  Inputs in = make_attention_inputs(150, 9, 3, 64, 8);
  for (at::Tensor& tensor : in) tensor = trained(tensor);
  expect_near_double(fused_attention({0, 100, 150}), in, at::kFloat, 5e-6);
  expect_near_double(fused_attention({0, 100, 150}), in, at::kBFloat16, 5e-2);
  expect_near_double(fused_attention({0, 100, 150}), in, at::kHalf, 5e-3);
}

// These documents end within the kernels' panels of 32 tokens, on the panels' edges, and beyond one block.
const std::vector<int64_t> kUnevenStarts = {0, 1, 32, 65, 265, 965, 997};

TEST(AttentionTest, UnevenDocumentsAndHeadsAreNearFloat64) {
  for (const int64_t head_dim : {24, 64, 80}) {
    for (const int64_t group : {1, 3}) {
      SCOPED_TRACE("head_dim " + std::to_string(head_dim) + ", group " + std::to_string(group));
      Inputs in = make_attention_inputs(kUnevenStarts.back(), 3, 3 / group, head_dim, 10);
      for (at::Tensor& tensor : in) tensor = trained(tensor);
      expect_near_double(fused_attention(kUnevenStarts), in, at::kFloat, 5e-6);
      expect_near_double(fused_attention(kUnevenStarts), in, at::kBFloat16, 5e-2);
      expect_near_double(fused_attention(kUnevenStarts), in, at::kHalf, 5e-3);
    }
  }
}

TEST(AttentionTest, LongDocumentsAreNearFloat64InEveryType) {
  Inputs in = make_attention_inputs(1200, 4, 2, 16, 11);
  for (at::Tensor& tensor : in) tensor = trained(tensor);
  expect_near_double(fused_attention({0, 1180, 1200}), in, at::kFloat, 5e-6);
  expect_near_double(fused_attention({0, 1180, 1200}), in, at::kBFloat16, 5e-2);
  expect_near_double(fused_attention({0, 1180, 1200}), in, at::kHalf, 5e-3);
}

// Scores that rise from one block of keys to the next make the running maximum grow.
TEST(AttentionTest, RisingScoresAreNearFloat64) {
  Inputs in = make_attention_inputs(1100, 2, 1, 32, 12);
  in[0] = in[0].abs();
  in[1] = in[1].abs() * at::arange(1100, at::kDouble).div(200).view({-1, 1, 1});
  for (at::Tensor& tensor : in) tensor = trained(tensor);
  expect_near_double(fused_attention({0, 1100}), in, at::kFloat, 2e-5);
}

// The probabilities reach down to the smallest floats.
TEST(AttentionTest, ScoresFarApartAreNearFloat64) {
  Inputs in = make_attention_inputs(300, 2, 1, 64, 14);
  in[0] = in[0] * 4;
  in[1] = in[1] * 4;
  for (at::Tensor& tensor : in) tensor = trained(tensor);
  expect_near_double(fused_attention({0, 300}), in, at::kFloat, 2e-4);
}

TEST(AttentionTest, ThreadsDoNotMatterToTheBit) {
  const int threads = at::get_num_threads();
  for (const at::ScalarType type : {at::kFloat, at::kDouble, at::kBFloat16}) {
    SCOPED_TRACE(at::toString(type));
    Inputs in = make_attention_inputs(kUnevenStarts.back(), 6, 2, 64, 13);
    for (at::Tensor& tensor : in) tensor = trained(tensor.to(type));
    at::set_num_threads(1);
    const Evaluation alone = evaluate(fused_attention(kUnevenStarts), in);
    at::set_num_threads(3);
    const Evaluation shared = evaluate(fused_attention(kUnevenStarts), in);
    EXPECT_TRUE(at::equal(alone.output, shared.output));
    for (size_t i = 0; i < in.size(); ++i)
      EXPECT_TRUE(at::equal(alone.gradients[i], shared.gradients[i])) << i;
  }
  at::set_num_threads(threads);
}

TEST(AttentionTest, RefusesWrongStarts) {
  const Inputs in = make_attention_inputs(5, 2, 1, 4, 9);
  for (const auto& starts :
       std::vector<std::vector<int64_t>>{{}, {0}, {0, 4}, {1, 5}, {0, 3, 2, 5}, {0, 6}}) {
    EXPECT_THROW(fused_attention(starts)(in), Error) << at::IntArrayRef(starts);
  }
  EXPECT_THROW(
      document_attention(in[0], random_tensor({5, 3, 4}, 1), random_tensor({5, 3, 4}, 2), {0, 5}, {1.0}),
      Error);
}

}  // namespace
}  // namespace tessera::ops
