// Parts that the sources of ops/ share: argument checks, dispatch on the element type, flattening.
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

// Dispatch key of tensors whose values may not be read now: any operation of LibTorch on one throws an Error
// that says why, which does not protect from code that reads memory itself. It is a key of LibTorch's
// dispatcher, above autograd, for which LibTorch has no kernels.
inline constexpr c10::DispatchKey kUnreadableKey = c10::DispatchKey::DeferredInit;

namespace detail {
at::Tensor copied_to(at::Device device, const void* values, at::ScalarType type, int64_t count);
}

// Returns true if an op on these inputs must leave a node in the autograd graph.
bool needs_graph(std::initializer_list<at::Tensor> inputs);

// Refuses, with Error(Config), tensors that are not float32, float64, bfloat16 or float16, or lie on
// several devices.
void check_operands(const char* op, std::initializer_list<const at::Tensor*> tensors);

// Refuses a gradient that is asked for with create_graph, instead of giving a wrong one: our gradients are
// not differentiable themselves. Called in a backward.
void refuse_double_backward(const char* op);

// Returns the type that tensors of type `stored` are computed in: float64 for float64, else float32.
at::ScalarType compute_type(at::ScalarType stored);

// Returns the tensor in compute_type of `stored`: itself, if it is contiguous and of that type, or a
// contiguous copy.
at::Tensor in_compute_type(const at::Tensor& tensor, at::ScalarType stored);

// Returns numbers of the host as a tensor [values] on a device, without waiting: on the host the tensor is
// the same memory, which must live on; elsewhere it is a copy.
template <class T>
at::Tensor copied_to(at::Device device, const std::vector<T>& values) {
  return detail::copied_to(device, values.data(), c10::CppTypeToScalarType<T>::value,
                           static_cast<int64_t>(values.size()));
}

// Returns [..., width] as [rows, width].
at::Tensor flatten_rows(const at::Tensor& tensor);

// Keep and take out the source of a product's input in the product's context. The backward takes it out, so
// that it is freed as soon as the backward is done; null if there is none.
void keep_source(torch::autograd::AutogradContext& ctx, const c10::intrusive_ptr<ActivationSource>& source);
c10::intrusive_ptr<ActivationSource> take_source(torch::autograd::AutogradContext& ctx);

// Keep and return the type of the products of an op's forward, in its context for its backward.
void keep_product_type(torch::autograd::AutogradContext& ctx);
ProductType kept_product_type(torch::autograd::AutogradContext& ctx);

// Computes rows weight + more as the gradient of a product's input: adds it to source->gradient and returns
// an undefined tensor if `source` collects gradients, else returns it. rows: [n, out]; weight: [out, in];
// result [n, in].
at::Tensor input_gradient(const at::Tensor& rows, const Weight& weight,
                          const c10::intrusive_ptr<ActivationSource>& source, const MoreFactors& more = {});

// Returns the tensor's elements for kernels; the tensor must lie in host memory.
template <class T>
const T* read(const at::Tensor& tensor) {
  return static_cast<const T*>(tensor.const_data_ptr());
}

// Returns the tensor's elements for kernels to write, null for an undefined tensor.
template <class T>
T* write(const at::Tensor& tensor) {
  return tensor.defined() ? static_cast<T*>(tensor.mutable_data_ptr()) : nullptr;
}

// Returns x in the type that it is computed in.
inline float widened(kernels::Bf16 x) { return kernels::to_float(x); }
inline float widened(float x) { return x; }
inline double widened(double x) { return x; }

// Calls f(T()) with the kernels' type for `type`, one that has host kernels: float32, float64 or bfloat16.
template <class F>
void dispatch(at::ScalarType type, F&& f) {
  switch (type) {
    case at::kFloat: return std::forward<F>(f)(float());
    case at::kDouble: return std::forward<F>(f)(double());
    case at::kBFloat16: return std::forward<F>(f)(kernels::Bf16());
    default: TESSERA_ASSERT(false, "element type without kernels");
  }
}

// Returns the number of rows for one task of at::parallel_for, so that a task is worth starting.
inline int64_t rows_per_task(int64_t width) { return width >= 32768 ? 1 : 32768 / (width > 0 ? width : 1); }

}  // namespace tessera::ops
