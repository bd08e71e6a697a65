#include "tessera/ops/support.h"

#include <string>

#include <ATen/ATen.h>

#include "tessera/core/check_argument.h"
#include "tessera/device/device.h"
#include "tessera/device/device_copy.h"

namespace tessera::ops {

bool needs_graph(std::initializer_list<at::Tensor> inputs) {
  if (!at::GradMode::is_enabled()) return false;
  for (const auto& input : inputs) {
    if (input.defined() && input.requires_grad()) return true;
  }
  return false;
}

void check_operands(const char* op, std::initializer_list<const at::Tensor*> tensors) {
  const at::Tensor& first = **tensors.begin();
  for (const at::Tensor* tensor : tensors) {
    TESSERA_CHECK_ARGUMENT(tensor->defined(), std::string(op) + ": undefined tensor");
    // A tensor that may not be read now throws in any operation of LibTorch, but our kernels read memory:
    // alias() makes it throw here.
    if (tensor->key_set().has(kUnreadableKey)) tensor->alias();
    const auto type = tensor->scalar_type();
    if (type != at::kFloat && type != at::kDouble && type != at::kBFloat16 && type != at::kHalf) {
      throw Error(ErrorKind::Config, "OP-DTYPE", std::string(op) + " does not compute in this type")
          .got(at::toString(type))
          .need("float32, float64, bfloat16 or float16");
    }
    if (tensor->device() != first.device()) {
      throw Error(ErrorKind::Config, "OP-DEVICE", std::string(op) + ": operands on different devices")
          .got(first.device().str() + " and " + tensor->device().str());
    }
  }
}

void refuse_double_backward(const char* op) {
  if (!at::GradMode::is_enabled()) return;
  throw Error(ErrorKind::Config, "DOUBLE-BACKWARD", std::string(op) + ": its gradient is not differentiable")
      .hint("do not set create_graph");
}

at::ScalarType compute_type(at::ScalarType stored) {
  return stored == at::kDouble ? at::kDouble : at::kFloat;
}

at::Tensor in_compute_type(const at::Tensor& tensor, at::ScalarType stored) {
  return tensor.to(compute_type(stored)).contiguous();
}

at::Tensor detail::copied_to(at::Device device, const void* values, at::ScalarType type, int64_t count) {
  return copy_to(at::from_blob(const_cast<void*>(values), {count}, on_host(type)), device);
}

at::Tensor flatten_rows(const at::Tensor& tensor) {
  if (tensor.dim() == 2) return tensor;
  const int64_t width = tensor.size(-1);
  TESSERA_ASSERT(width > 0, "rows of width 0");
  return tensor.reshape({tensor.numel() / width, width});
}

void keep_source(torch::autograd::AutogradContext& ctx, const c10::intrusive_ptr<ActivationSource>& source) {
  if (source != nullptr) ctx.saved_data["source"] = c10::IValue::make_capsule(source);
  ctx.saved_data["has_source"] = source != nullptr;
}

c10::intrusive_ptr<ActivationSource> take_source(torch::autograd::AutogradContext& ctx) {
  if (!ctx.saved_data["has_source"].toBool()) return {};
  const auto found = ctx.saved_data.find("source");
  TESSERA_ASSERT(found != ctx.saved_data.end(), "a product of a recomputed input runs backward once");
  auto source = c10::static_intrusive_pointer_cast<ActivationSource>(found->second.toCapsule());
  ctx.saved_data.erase(found);
  return source;
}

void keep_product_type(torch::autograd::AutogradContext& ctx) {
  ctx.saved_data["product_type"] = static_cast<int64_t>(product_type());
}

ProductType kept_product_type(torch::autograd::AutogradContext& ctx) {
  return static_cast<ProductType>(ctx.saved_data["product_type"].toInt());
}

at::Tensor input_gradient(const at::Tensor& rows, const Weight& weight,
                          const c10::intrusive_ptr<ActivationSource>& source, const MoreFactors& more) {
  if (source == nullptr || !source->collects_gradient()) return product(rows, weight, more);
  if (source->gradient.defined()) {
    add_product(source->gradient, rows, weight, more);
  } else {
    source->gradient = product(rows, weight, more);
  }
  return {};
}

}  // namespace tessera::ops
