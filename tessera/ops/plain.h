// The ops as plain formulas of LibTorch's operations, in the order in which Transformers has them: to compare
// a model with Transformers to the last bits, and Tessera's kernels with what they stand for.
#pragma once

#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "tessera/core/carried_scope.h"
#include "tessera/ops/attention_formula.h"
#include "tessera/ops/mlp_activation.h"

namespace tessera::ops {

// While one lives, ops that need no gradient are computed by the formulas below.
class PlainOps {
 public:
  PlainOps() : scope_(Mark{}) {}

  static bool are_on() { return CarriedScope<Mark>::current() != nullptr; }

 private:
  struct Mark {};
  CarriedScope<Mark> scope_;
};

// Arguments and results as of the op of the same name.
namespace plain {

at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const std::optional<at::Tensor>& bias);
at::Tensor lora_linear(const at::Tensor& x, const at::Tensor& weight, const std::optional<at::Tensor>& bias,
                       const at::Tensor& a, const at::Tensor& b, double scaling);
at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps);
at::Tensor apply_rope(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin);
at::Tensor activate_mlp(Nonlinearity f, const at::Tensor& gate, const at::Tensor& up);
at::Tensor document_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                              const std::vector<int64_t>& document_starts, const AttentionFormula& formula);

}  // namespace plain
}  // namespace tessera::ops
