#include "tessera/parallel/fsdp/hollow.h"

#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/util/Logging.h>
#include <torch/library.h>

#include "tessera/core/environment.h"
#include "tessera/core/error.h"
#include "tessera/ops/support.h"

namespace tessera::parallel::detail {
namespace {

// The error of a hollow tensor, kept as the context of its storage.
struct Reason {
  std::string parameter, unit;
  bool is_gradient = false;

  Error error() const {
    return Error(ErrorKind::Config, "SHARDED-PARAMETER",
                 "parameter '" + parameter + "' of a sharded module is used outside the forward of " + unit)
        .hint(
            "run the module and its units through nn::call() or nn::call_hooked(); read the parameter by "
            "ShardedModel::full_tensor(), or its tile, or after ShardedModel::unshard(); an optimizer takes "
            "ShardedModel::trained_tiles(), which get the gradients");
  }
};

void delete_reason(void* reason) { delete static_cast<Reason*>(reason); }

// Returns the reason of a hollow tensor; null for any other.
const Reason* reason_of(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.key_set().has(ops::kUnreadableKey)) return nullptr;
  const at::DataPtr& data = tensor.storage().unsafeGetStorageImpl()->_mutable_data_ptr_no_checks();
  TESSERA_ASSERT(data.get_deleter() == &delete_reason, "a hollow tensor knows its parameter");
  return static_cast<const Reason*>(data.get_context());
}

void throw_if_hollow(const at::Tensor& tensor) {
  if (const Reason* reason = reason_of(tensor)) throw reason->error();
}

// Tells whether the operation is a part of zero_grad() of LibTorch's modules.
bool clears_gradients(const std::string& operation) {
  return operation == "aten::detach_" || operation == "aten::detach" || operation == "aten::zero_" ||
         operation == "aten::requires_grad_";
}

// Runs instead of any operation that has a hollow tensor among its arguments, and throws the error of the
// first one.
void refuse(const c10::OperatorHandle& operation, c10::DispatchKeySet, torch::jit::Stack* stack) {
  const size_t num_arguments = operation.schema().arguments().size();
  const c10::IValue& self = torch::jit::peek(*stack, 0, num_arguments);
  if (clears_gradients(operation.schema().name()) && self.isTensor()) {
    const Reason* const reason = reason_of(self.toTensor());
    // The tensor itself is the result.
    if (reason != nullptr && reason->is_gradient) return torch::jit::drop(*stack, num_arguments - 1);
  }
  for (const c10::IValue& argument : torch::jit::last(*stack, num_arguments)) {
    if (argument.isTensor()) throw_if_hollow(argument.toTensor());
    if (argument.isTensorList()) {
      for (const at::Tensor& tensor : argument.toTensorVector()) throw_if_hollow(tensor);
    }
    if (argument.isOptionalTensorList()) {
      for (const std::optional<at::Tensor>& tensor : argument.toOptionalTensorVector()) {
        if (tensor.has_value()) throw_if_hollow(*tensor);
      }
    }
  }
  TESSERA_ASSERT(false, "an operation on no hollow tensor");
}

void register_refusal() {
  static torch::Library library(torch::Library::IMPL, "_", ops::kUnreadableKey, __FILE__, __LINE__);
  static const bool is_done = [] {
    library.fallback(torch::CppFunction::makeFromBoxedFunction<&refuse>());
    // The error of a raw pointer is LibTorch's, whose text ends in a stack trace.
    if (environment::get("TORCH_SHOW_CPP_STACKTRACES").value_or("0") == "0") {
      c10::SetStackTraceFetcher([] { return std::string(); });
    }
    return true;
  }();
  static_cast<void>(is_done);
}

}  // namespace

at::Tensor make_hollow(const at::Tensor& like, const std::string& parameter, const std::string& unit,
                       bool is_gradient) {
  register_refusal();
  auto* const reason = new Reason{parameter, unit, is_gradient};
  auto storage = c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), 0, at::DataPtr(nullptr, reason, &delete_reason, like.device()),
      /*allocator=*/nullptr, /*resizable=*/false);
  storage->release_data_and_set_meta_custom_data_ptr_error_msg_(std::string("tessera: ") +
                                                                reason->error().what());
  at::Tensor hollow = at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(std::move(storage)),
      c10::DispatchKeySet(
          {c10::computeDispatchKey(like.scalar_type(), at::kStrided, like.device()), ops::kUnreadableKey}),
      like.dtype());
  hollow.unsafeGetTensorImpl()->set_sizes_contiguous(like.sizes());
  return hollow;
}

void put_in_place(const at::Tensor& parameter, const at::Tensor& value) {
  parameter.unsafeGetTensorImpl()->shallow_copy_from(value.getIntrusivePtr());
}

}  // namespace tessera::parallel::detail
