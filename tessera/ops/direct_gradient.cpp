#include "tessera/ops/direct_gradient.h"

#include <utility>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/variable.h>

#include "tessera/device/memory_scope.h"
#include "tessera/ops/deferred_gradient.h"
#include "tessera/ops/e4m3.h"
#include "tessera/ops/product.h"
#include "tessera/ops/support.h"

namespace tessera::ops {
namespace {

// The mark on a parameter (accumulate_directly()). It hangs on the tensor itself, and goes with it.
struct DirectGradient : c10::BackendMeta {
  explicit DirectGradient(at::ScalarType gradient_type) : type(gradient_type) {}
  at::ScalarType type;
};

void add_now(const at::Tensor& parameter, at::ScalarType type, const at::Tensor& a, const at::Tensor& b) {
  at::Tensor& gradient = parameter.mutable_grad();
  const bool is_first = !gradient.defined();
  if (is_first) {
    const MemoryScope memory(MemoryCategory::Gradients);
    gradient = at::empty(parameter.sizes(), parameter.options().dtype(type).requires_grad(false));
  }
  // These find the scales noted for a and b, which the transposed view a.t() alone would not. Operands of an
  // enclosing scope take precedence; a product that was put off has lost those of its backward.
  E4m3Operand of_a(a), of_b(b);
  const E4m3OperandsScope operands(product_type(), {&of_a, &of_b});
  is_first ? product_out(gradient, a.t(), b) : add_product(gradient, a.t(), b);
}

at::ScalarType expected_type(const at::Tensor& parameter) {
  const auto type = direct_gradient_type(parameter);
  TESSERA_ASSERT(type.has_value(), "the parameter takes no direct gradients");
  return *type;
}

// Runs `add`, or leaves it to the DeferGradientsScope in force ([Note: ways around autograd]).
template <class F>
void now_or_later(F add) {
  if (DeferredGradients* const* later = DeferGradientsScope::current()) return (*later)->add(std::move(add));
  add();
}

}  // namespace

void accumulate_directly(const at::Tensor& parameter, at::ScalarType type) {
  TESSERA_ASSERT(parameter.is_leaf(), "direct gradients are for leaves");
  parameter.unsafeGetTensorImpl()->set_backend_meta(c10::make_intrusive<DirectGradient>(type));
}

std::optional<at::ScalarType> direct_gradient_type(const at::Tensor& parameter) {
  if (!parameter.requires_grad() || !parameter.is_leaf()) return std::nullopt;
  const auto* mark = dynamic_cast<DirectGradient*>(parameter.unsafeGetTensorImpl()->get_backend_meta());
  if (mark == nullptr) return std::nullopt;
  // A hook on the parameter wants to see, and may change, the gradient that autograd brings.
  if (!torch::autograd::impl::hooks(parameter).empty()) return std::nullopt;
  if (torch::autograd::impl::post_acc_grad_hooks(parameter) != nullptr) return std::nullopt;
  return mark->type;
}

void add_product_to_gradient(const at::Tensor& parameter, const at::Tensor& a, const at::Tensor& b) {
  const at::ScalarType type = expected_type(parameter);
  now_or_later([=, products = product_type()] {
    const ProductScope scope(products);
    add_now(parameter, type, a, b);
  });
}

void add_to_gradient(const at::Tensor& parameter, const at::Tensor& gradient) {
  const at::ScalarType type = expected_type(parameter);
  now_or_later([=] {
    at::Tensor& sum = parameter.mutable_grad();
    if (sum.defined()) {
      sum.add_(gradient);
    } else {
      const MemoryScope memory(MemoryCategory::Gradients);
      sum = gradient.to(type, /*non_blocking=*/false, /*copy=*/true);
    }
  });
}

}  // namespace tessera::ops
