// What a sharded parameter is between its uses: a tensor that can be asked for its shape, but not read.
#pragma once

#include <string>

#include <ATen/core/Tensor.h>

namespace tessera::parallel::detail {

// A tensor of the shape, type and device of `like`, without memory. Every operation on it throws
// Error(Config), which names the parameter and its unit; a raw data pointer of it throws c10::Error with the
// same text. For put_in_place().
at::Tensor make_hollow(const at::Tensor& like, const std::string& parameter, const std::string& unit);

// `parameter` becomes `value` for everyone who holds it: it shares value's storage and can be read as value
// can. What autograd knows of the parameter, its gradient and its version stay its own.
void put_in_place(const at::Tensor& parameter, const at::Tensor& value);

}  // namespace tessera::parallel::detail
