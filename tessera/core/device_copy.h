// Tensors on their way to a device.
#pragma once

#include <ATen/core/Tensor.h>

namespace tessera {

// A copy of x on `device`, in its type and shape; x itself where it lies there. The host does not wait for a
// copy to a GPU: what lies on the host goes through pinned memory, and is there for what the current stream
// runs next.
at::Tensor copy_to(const at::Tensor& x, c10::Device device);

}  // namespace tessera
