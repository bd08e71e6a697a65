#include "tessera/nn/materialize.h"

#include <vector>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/variable.h>

#include "tessera/core/check_argument.h"
#include "tessera/core/error.h"

namespace tessera::nn {

void materialize(at::Tensor& parameter, const at::Tensor& value) {
  TESSERA_CHECK_ARGUMENT(parameter.defined() && parameter.is_leaf(), "only a leaf is materialised");
  TESSERA_CHECK_ARGUMENT(value.defined() && !value.requires_grad(),
                         "the value of a parameter carries no gradient");
  // Only sizes, type and storage are copied; the parameter keeps its autograd metadata.
  parameter.unsafeGetTensorImpl()->shallow_copy_from(value.getIntrusivePtr());
  // An accumulator that was made before this remembers the old shape and device, so it is dropped.
  if (auto* meta = torch::autograd::impl::get_autograd_meta(parameter)) meta->grad_accumulator_.reset();
  parameter.mutable_grad().reset();
}

void make_coded(at::Tensor& parameter, const io::BlockForm& form) {
  TESSERA_ASSERT(parameter.is_meta() && parameter.size(1) % form.elements == 0,
                 "a weight takes whole blocks before it has values");
  const std::vector<int64_t> sizes = {parameter.size(0), form.row_bytes(parameter.size(1))};
  parameter.set_requires_grad(false);
  materialize(parameter, at::empty(sizes, at::TensorOptions().dtype(at::kByte).device(at::kMeta)));
}

}  // namespace tessera::nn
