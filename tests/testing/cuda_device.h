// For tests that need a GPU (tests/<folder>/<name>_cuda_test.cpp, with the label `cuda`): each test begins
// with TESSERA_NEEDS_CUDA(), and makes its tensors on cuda_device(). Included by such tests alone.
#pragma once

#include <ATen/core/Tensor.h>
#include <gtest/gtest.h>

#include "tessera/core/cuda_library.h"
#include "tessera/device/device.h"

#include "tests/testing/skip.h"

namespace tessera::testing {
namespace detail {
// Opened before main(), since LibTorch looks for its CUDA part only once.
inline const bool kHasOpenedCuda = cuda::open();
}  // namespace detail

// Returns the GPU. Throws E-CONFIG-DEVICE if there is none.
inline c10::Device cuda_device() { return resolve_device({DeviceKind::Cuda}); }

}  // namespace tessera::testing

#define TESSERA_NEEDS_CUDA()       \
  if (!::tessera::cuda::is_open()) \
  GTEST_SKIP() << ::tessera::testing::skip::kCuda << ": " << ::tessera::cuda::why_not()
