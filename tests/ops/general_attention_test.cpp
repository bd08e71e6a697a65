#include "tessera/ops/general_attention.h"

#include <gtest/gtest.h>

#include "tessera/ops/attention.h"

#include "tests/testing/gradcheck.h"

namespace tessera::ops {
namespace {

using namespace checks;

const std::vector<int64_t> kStarts = {0, 5, 5, 6, 13};

Inputs make_inputs() {
  return {random_tensor({13, 6, 4}, 1), random_tensor({13, 2, 4}, 2), random_tensor({13, 2, 4}, 3)};
}

Op general(const AttentionFormula& formula) {
  return [formula](const Inputs& in) { return general_attention(in[0], in[1], in[2], kStarts, formula); };
}

TEST(GeneralAttentionTest, EqualsTheKernelWhereThereIsOne) {
  const Op kernel = [](const Inputs& in) { return document_attention(in[0], in[1], in[2], kStarts, 0.4); };
  expect_same_for_subsets(general({.scale = 0.4}), kernel, make_inputs(), 3, 1e-12);
}

// One token and one head at a time, from the definition.
at::Tensor by_definition(const Inputs& in, const AttentionFormula& formula) {
  const at::Tensor result = at::zeros_like(in[0]);
  for (size_t d = 0; d + 1 < kStarts.size(); ++d) {
    for (int64_t i = kStarts[d]; i < kStarts[d + 1]; ++i) {
      const int64_t count = (formula.is_causal ? i + 1 : kStarts[d + 1]) - kStarts[d];
      for (int64_t head = 0; head < 6; ++head) {
        const at::Tensor keys = in[1].narrow(0, kStarts[d], count).select(1, head / 3);
        at::Tensor scores = at::mv(keys, in[0][i][head]) * formula.scale;
        if (formula.soft_cap > 0) scores = formula.soft_cap * at::tanh(scores / formula.soft_cap);
        const at::Tensor values = in[2].narrow(0, kStarts[d], count).select(1, head / 3);
        result[i][head] = at::mv(values.t(), at::softmax(scores, 0));
      }
    }
  }
  return result;
}

TEST(GeneralAttentionTest, EqualsTheDefinition) {
  for (const AttentionFormula& formula :
       {AttentionFormula{0.5, true, 0.0}, AttentionFormula{0.5, false, 0.0}, AttentionFormula{1.0, true, 1.5},
        AttentionFormula{0.3, false, 0.7}}) {
    const Inputs in = make_inputs();
    expect_near(general(formula)(in), by_definition(in, formula), 1e-12, "attention");
    gradcheck(general(formula), {trained(in[0]), trained(in[1]), trained(in[2])});
  }
}

TEST(GeneralAttentionTest, Bfloat16IsNearFloat64) {
  expect_near_double(general({.scale = 0.4, .is_causal = false, .soft_cap = 2.0}), make_inputs(),
                     at::kBFloat16, 2e-2);
}

}  // namespace
}  // namespace tessera::ops
