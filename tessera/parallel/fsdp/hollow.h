// The state of a sharded parameter between its uses: a tensor that can be asked for its shape, but not read.
#pragma once

#include <string>

#include <ATen/core/Tensor.h>

namespace tessera::parallel::detail {

// Returns a tensor of the shape, type and device of `like`, without memory, for put_in_place(). Every
// operation on it throws Error(Config), which names the parameter and its unit; a raw data pointer of it
// throws c10::Error with the same text, for which LibTorch's errors lose their stack traces unless the
// environment sets TORCH_SHOW_CPP_STACKTRACES. If `is_gradient` is set, it stands for a gradient that lies
// elsewhere, and what zero_grad() of LibTorch's modules does to gradients leaves it as it is.
at::Tensor make_hollow(const at::Tensor& like, const std::string& parameter, const std::string& unit,
                       bool is_gradient = false);

// Makes `parameter` the tensor `value` for everyone who holds it: it shares value's storage and can be read
// if value can. The parameter keeps what autograd knows of it, its gradient and its version.
void put_in_place(const at::Tensor& parameter, const at::Tensor& value);

}  // namespace tessera::parallel::detail
