// What the sources of ops/ share: argument checks, dispatch on the element type, flattening.
#pragma once

#include <initializer_list>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/custom_function.h>

#include "tessera/core/error.h"
#include "tessera/ops/activation.h"
#include "tessera/ops/e4m3.h"
#include "tessera/ops/kernels/kernels.h"
#include "tessera/ops/product.h"

namespace tessera::ops {

// Key of tensors whose values may not be read now: any operation on one throws an Error that says why, except
// for code that reads memory itself. One of LibTorch's dispatcher, above autograd, that LibTorch has no
// kernels for.
inline constexpr c10::DispatchKey kUnreadableKey = c10::DispatchKey::DeferredInit;

namespace detail {
at::Tensor copied_to(at::Device device, const void* values, at::ScalarType type, int64_t count);
}

// True if an op on these inputs must leave a node in the autograd graph.
bool needs_graph(std::initializer_list<at::Tensor> inputs);

// Refuses, with Error(Config), tensors that are not float32, float64, bfloat16 or float16, or lie on
// several devices.
void check_operands(const char* op, std::initializer_list<const at::Tensor*> tensors);

// Called in a backward pass: our gradients are not differentiable themselves, so one that is asked for with
// create_graph is refused instead of being wrong.
void refuse_double_backward(const char* op);

// float64 for float64, else float32.
at::ScalarType compute_type(at::ScalarType stored);

// A contiguous copy, or the tensor itself, in compute_type of `stored`.
at::Tensor in_compute_type(const at::Tensor& tensor, at::ScalarType stored);

// Numbers of the host as a tensor on a device, which nobody waits for: the same memory on the host, which
// must live on, and elsewhere a copy.
template <class T>
at::Tensor copied_to(at::Device device, const std::vector<T>& values) {
  return detail::copied_to(device, values.data(), c10::CppTypeToScalarType<T>::value,
                           static_cast<int64_t>(values.size()));
}

// [..., width] as [rows, width].
at::Tensor flatten_rows(const at::Tensor& tensor);

// The source of a product's input, kept in the product's context and taken out by its backward, so that it is
// freed as soon as the backward is done; null where there is none.
void keep_source(torch::autograd::AutogradContext& ctx, const c10::intrusive_ptr<ActivationSource>& source);
c10::intrusive_ptr<ActivationSource> take_source(torch::autograd::AutogradContext& ctx);

// The type of the products of an op's forward, kept in its context for its backward.
void keep_product_type(torch::autograd::AutogradContext& ctx);
ProductType kept_product_type(torch::autograd::AutogradContext& ctx);

// rows * weight + more as the gradient of a product's input: added to what `source` collects, if it does so,
// and returned otherwise.
at::Tensor input_gradient(const at::Tensor& rows, const at::Tensor& weight,
                          const c10::intrusive_ptr<ActivationSource>& source, const MoreFactors& more = {});

// Elements for kernels, so of a tensor in host memory.
template <class T>
const T* read(const at::Tensor& tensor) {
  return static_cast<const T*>(tensor.const_data_ptr());
}

// Null for an undefined tensor.
template <class T>
T* write(const at::Tensor& tensor) {
  return tensor.defined() ? static_cast<T*>(tensor.mutable_data_ptr()) : nullptr;
}

// The number in the type that it is computed in.
inline float widened(kernels::Bf16 x) { return kernels::to_float(x); }
inline float widened(float x) { return x; }
inline double widened(double x) { return x; }

// Calls f(T()) with the kernels' type for `type`, which check_operand has let through.
template <class F>
void dispatch(at::ScalarType type, F&& f) {
  switch (type) {
    case at::kFloat: return std::forward<F>(f)(float());
    case at::kDouble: return std::forward<F>(f)(double());
    case at::kBFloat16: return std::forward<F>(f)(kernels::Bf16());
    default: TESSERA_ASSERT(false, "element type without kernels");
  }
}

// Rows for one task of at::parallel_for, so that a task is worth starting.
inline int64_t rows_per_task(int64_t width) { return width >= 32768 ? 1 : 32768 / (width > 0 ? width : 1); }

}  // namespace tessera::ops
