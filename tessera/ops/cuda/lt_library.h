// NVIDIA's library of matrix products, opened at run time: the program is linked with nothing of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace tessera::ops::cuda {

// The declarations of CUDA 13's cublasLt.h, cublas_api.h and library_types.h, as far as they are used here.
// Enums are int there, except those of attributes' values, whose width is said beside them.
namespace lt {

using Handle = struct LtContext*;
using Desc = struct LtMatmulDesc*;
using Layout = struct LtMatrixLayout*;
using Preference = struct LtMatmulPreference*;

enum Status : int32_t { kSuccess = 0, kInvalidValue = 7, kArchMismatch = 8, kNotSupported = 15 };
enum DataType : int32_t { kF32 = 0, kBF16 = 14, kE4M3 = 28 };
enum ComputeType : int32_t { kCompute32F = 68 };
enum Transpose : int32_t { kNotTransposed = 0, kTransposed = 1 };

enum DescAttribute : int32_t {
  kTransA = 3,     // int32_t, a Transpose
  kTransB = 4,     // int32_t, a Transpose
  kScaleOfA = 17,  // const void*: a float on the device
  kScaleOfB = 18,  // const void*: a float on the device
  kFastSums = 25,  // int8_t: sums of fp8 products that are seldom promoted
};
enum PreferenceAttribute : int32_t {
  kWorkspaceBytes = 1,    // uint64_t, the most bytes
  kReductionSchemes = 3,  // uint32_t, a mask of those that may be taken
  kAlignmentOfA = 5,      // uint32_t, bytes; and so are the next three
  kAlignmentOfB = 6,
  kAlignmentOfC = 7,
  kAlignmentOfD = 8,
};
// Parts of the depth may be summed in float32, in an order of their own; other schemes round parts to the
// result's type.
enum ReductionScheme : uint32_t { kInComputeType = 2 };

struct Algorithm {
  uint64_t data[8];
};
struct Heuristic {
  Algorithm algorithm;
  size_t workspace_bytes;
  Status status;  // the other members hold if it is kSuccess
  float waves;
  int reserved[4];
};

}  // namespace lt

// The functions of cuBLASLt that are used here. Its matrices are column-major.
struct LtLibrary {
  // Opens `path`, by default the library that libtorch_cuda.so has loaded. Returns nothing, and in `why_not`
  // the reason in one line, if it is not there, lacks a function or is not of version 13.
  static std::optional<LtLibrary> open(std::string& why_not, const std::string& path = "libcublasLt.so.13");

  size_t (*version)() = nullptr;  // 130000 for 13.0.0
  const char* (*status_text)(lt::Status) = nullptr;
  // Makes a handle of the current device, which several threads may use at once.
  lt::Status (*create)(lt::Handle*) = nullptr;
  lt::Status (*desc_create)(lt::Desc*, lt::ComputeType, lt::DataType scale_type) = nullptr;
  lt::Status (*desc_destroy)(lt::Desc) = nullptr;
  lt::Status (*desc_set)(lt::Desc, lt::DescAttribute, const void* value, size_t bytes) = nullptr;
  lt::Status (*layout_create)(lt::Layout*, lt::DataType, uint64_t rows, uint64_t columns,
                              int64_t stride) = nullptr;
  lt::Status (*layout_destroy)(lt::Layout) = nullptr;
  lt::Status (*preference_create)(lt::Preference*) = nullptr;
  lt::Status (*preference_destroy)(lt::Preference) = nullptr;
  lt::Status (*preference_set)(lt::Preference, lt::PreferenceAttribute, const void* value,
                               size_t bytes) = nullptr;
  lt::Status (*find_algorithms)(lt::Handle, lt::Desc, lt::Layout a, lt::Layout b, lt::Layout c, lt::Layout d,
                                lt::Preference, int most, lt::Heuristic* found, int* num_found) = nullptr;
  // Enqueues d = alpha a b + beta c, with alpha and beta in the host's memory, and waits for nothing.
  lt::Status (*matmul)(lt::Handle, lt::Desc, const void* alpha, const void* a, lt::Layout, const void* b,
                       lt::Layout, const void* beta, const void* c, lt::Layout, void* d, lt::Layout,
                       const lt::Algorithm*, void* workspace, size_t workspace_bytes, void* stream) = nullptr;
};

}  // namespace tessera::ops::cuda
