#include "tessera/ops/cuda/own_kernels.h"

#include <algorithm>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/core/cuda_library.h"
#include "tessera/ops/cuda/aten_leaves.h"
#include "tessera/ops/cuda/own_leaves.h"

namespace tessera::ops {
namespace {

using ::testing::HasSubstr;

cuda::OwnKernels kernels_of(const char* path) { return cuda::find_kernels(SharedLibrary({path})); }

TEST(OwnKernels, AreTakenFromALibraryThatFits) {
  const cuda::OwnKernels found = kernels_of(TESSERA_STUB_KERNELS_FITS);
  ASSERT_NE(found.table, nullptr) << found.why_not;
  EXPECT_EQ(found.why_not, "");
  EXPECT_EQ(found.table->version, cuda::kCudaKernelsVersion);
}

TEST(OwnKernels, OfAnotherBuildAreNotTaken) {
  const std::string need = "need version " + std::to_string(cuda::kCudaKernelsVersion) + " of " +
                           std::to_string(sizeof(cuda::CudaKernels)) + " bytes";
  const cuda::OwnKernels older = kernels_of(TESSERA_STUB_KERNELS_OLDER);
  EXPECT_EQ(older.table, nullptr);
  EXPECT_THAT(older.why_not,
              ::testing::AllOf(HasSubstr("another build's"), HasSubstr(need),
                               HasSubstr("version " + std::to_string(cuda::kCudaKernelsVersion - 1))));
  const cuda::OwnKernels smaller = kernels_of(TESSERA_STUB_KERNELS_SMALLER);
  EXPECT_EQ(smaller.table, nullptr);
  EXPECT_THAT(smaller.why_not,
              ::testing::AllOf(HasSubstr(need), HasSubstr(std::to_string(sizeof(cuda::CudaKernels) - 8))));
}

TEST(OwnKernels, WithoutATableAreNotTaken) {
  for (const char* path : {TESSERA_STUB_KERNELS_EMPTY, TESSERA_STUB_KERNELS_NAMELESS}) {
    const cuda::OwnKernels found = kernels_of(path);
    EXPECT_EQ(found.table, nullptr) << path;
    EXPECT_THAT(found.why_not, HasSubstr("has no table 'tessera_cuda_kernels'")) << path;
  }
}

TEST(OwnKernels, ThatDoNotFitAreWarnedOfAndLibTorchComputes) {
  const auto warned = [](const char* path) {
    ::testing::internal::CaptureStderr();
    const bool are_own = cuda::leaves_of(SharedLibrary({path})).adamw != cuda::aten_leaves().adamw;
    return std::pair(are_own, ::testing::internal::GetCapturedStderr());
  };
  EXPECT_EQ(warned(TESSERA_STUB_KERNELS_FITS), std::pair(true, std::string()));
  for (const char* path :
       {TESSERA_STUB_KERNELS_OLDER, TESSERA_STUB_KERNELS_SMALLER, TESSERA_STUB_KERNELS_EMPTY}) {
    const auto [are_own, said] = warned(path);
    EXPECT_FALSE(are_own) << path;
    EXPECT_THAT(said, ::testing::StartsWith("tessera: warning: libtessera_cuda.so ")) << path;
    EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1) << said;
  }
}

// This program opens no CUDA library.
TEST(OwnKernels, WhereThereAreNoneLibTorchComputes) {
  const cuda::OwnKernels found = cuda::own_kernels();
  EXPECT_EQ(found.table, nullptr);
  EXPECT_EQ(found.why_not, tessera::cuda::own_kernels_library().why_not());
  EXPECT_FALSE(found.why_not.empty());
  EXPECT_EQ(cuda_leaves().rms_norm, cuda::aten_leaves().rms_norm);
  EXPECT_EQ(cuda_leaves().adamw, cuda::aten_leaves().adamw);
}

}  // namespace
}  // namespace tessera::ops
