#include "tessera/ops/direct_gradient.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/variable.h>

#include "tessera/core/memory_ledger.h"
#include "tessera/ops/kernels/gemm.h"
#include "tessera/ops/support.h"

namespace tessera::ops {
namespace {

struct DirectGradient : c10::BackendMeta {
  explicit DirectGradient(at::ScalarType gradient_type) : type(gradient_type) {}
  at::ScalarType type;
};

}  // namespace

void accumulate_directly(const at::Tensor& parameter, at::ScalarType type) {
  TESSERA_ASSERT(parameter.is_leaf() && parameter.is_cpu(), "direct gradients are for leaves on the CPU");
  parameter.unsafeGetTensorImpl()->set_backend_meta(c10::make_intrusive<DirectGradient>(type));
}

std::optional<at::ScalarType> direct_gradient_type(const at::Tensor& parameter) {
  if (!parameter.requires_grad() || !parameter.is_leaf()) return std::nullopt;
  const auto* mark = dynamic_cast<DirectGradient*>(parameter.unsafeGetTensorImpl()->get_backend_meta());
  if (mark == nullptr) return std::nullopt;
  // A hook on the parameter wants to see, and may change, what autograd brings.
  if (!torch::autograd::impl::hooks(parameter).empty()) return std::nullopt;
  if (torch::autograd::impl::post_acc_grad_hooks(parameter) != nullptr) return std::nullopt;
  return mark->type;
}

void add_transposed_product(const at::Tensor& sum, const at::Tensor& a, const at::Tensor& b, bool is_first) {
  TESSERA_ASSERT(a.dim() == 2 && b.dim() == 2 && a.size(0) == b.size(0) && sum.is_contiguous() &&
                     sum.numel() == a.size(1) * b.size(1) && a.scalar_type() == b.scalar_type(),
                 "operands of a product of gradients");
  if (a.scalar_type() == at::kBFloat16 && sum.scalar_type() == at::kFloat && sum.numel() > 0 &&
      a.size(0) > 0) {
    const at::Tensor left = a.contiguous(), right = b.contiguous();
    kernels::gemm(kernels::Transpose::Yes, kernels::Transpose::No, a.size(1), b.size(1), a.size(0),
                  read<kernels::Bf16>(left), a.size(1), read<kernels::Bf16>(right), b.size(1),
                  is_first ? 0.0f : 1.0f, write<float>(sum), b.size(1));
    return;
  }
  at::Tensor target = sum.view({a.size(1), b.size(1)});
  if (sum.scalar_type() != a.scalar_type()) {
    const at::Tensor product = at::mm(a.t(), b);
    is_first ? target.copy_(product) : target.add_(product);
  } else if (is_first) {
    at::mm_out(target, a.t(), b);
  } else {
    target.addmm_(a.t(), b);
  }
}

void add_product_to_gradient(const at::Tensor& parameter, const at::Tensor& a, const at::Tensor& b) {
  const auto type = direct_gradient_type(parameter);
  TESSERA_ASSERT(type.has_value(), "the parameter takes no direct gradients");
  at::Tensor& gradient = parameter.mutable_grad();
  const bool is_first = !gradient.defined();
  if (is_first) {
    const MemoryScope memory(MemoryCategory::Gradients);
    gradient = at::empty(parameter.sizes(), parameter.options().dtype(*type).requires_grad(false));
  }
  add_transposed_product(gradient, a, b, is_first);
}

}  // namespace tessera::ops
