// NVIDIA's library of graphs of operations, opened at run time: the program is linked with nothing of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace tessera::ops::cuda {

// The declarations of cuDNN 9's cudnn_graph.h, as far as they are used here. Enums are int there.
namespace dnn {

using Handle = struct CudnnContext*;
using Desc = void*;

enum Status : int32_t { kSuccess = 0, kBadParameter = 2000, kNotSupported = 3000 };

enum DataType : int32_t { kF32 = 0, kF16 = 2, kI32 = 4, kBF16 = 9, kI64 = 10, kBool = 11 };

enum PointwiseMode : int32_t {
  kAdd = 0,
  kMultiply = 1,
  kDivide = 6,
  kSubtract = 9,
  kExp = 13,
  kLog = 15,
  kIdentity = 21,
  kGreater = 302,
  kGreaterEqual = 303,
  kLess = 304,
  kAnd = 400,
  kIndex = 501,   // the place along an axis
  kSelect = 601,  // t ? x : b
};
enum Reduction : int32_t { kSum = 0, kMax = 3 };
enum HeuristicMode : int32_t { kBestFirst = 3 };

enum DescType : int32_t {
  kPointwise = 0,
  kEngineConfig = 3,
  kHeuristic = 4,
  kPlan = 5,
  kPointwiseOp = 13,
  kGraph = 15,
  kVariantPack = 16,
  kTensor = 17,
  kMatmul = 18,
  kMatmulOp = 19,
  kReduction = 21,
  kReductionOp = 22,
  kReshapeOp = 31,
  kDeviceProperties = 38,
};

// Types of attributes' values, with the C++ type in which each is given.
enum ValueType : int32_t {
  kHandleValue = 0,      // Handle
  kDataTypeValue = 1,    // DataType
  kBoolValue = 2,        // bool
  kInt64Value = 3,       // int64_t
  kPointerValue = 6,     // void*
  kHeuristicValue = 8,   // HeuristicMode
  kPointwiseValue = 14,  // PointwiseMode
  kDescValue = 15,       // Desc
  kReductionValue = 18,  // Reduction
  kCharValue = 24,       // char
};

enum Attribute : int32_t {
  kPointwiseModeIs = 0,
  kPointwiseType = 1,
  kPointwiseAxis = 9,
  kHeuristicModeIs = 200,
  kHeuristicGraph = 201,
  kHeuristicResults = 202,
  kHeuristicDevice = 204,
  kPlanHandle = 400,
  kPlanConfig = 401,
  kPlanWorkspace = 402,
  kPlanDevice = 407,
  kPointwiseOpOf = 750,
  kPointwiseX = 751,
  kPointwiseB = 752,
  kPointwiseY = 753,
  kPointwiseT = 758,
  kGraphHandle = 800,
  kGraphOps = 801,
  kTensorAlignment = 900,
  kTensorType = 901,
  kTensorSizes = 902,
  kTensorStrides = 903,
  kTensorNumber = 906,
  kTensorIsVirtual = 907,
  kTensorIsByValue = 908,
  kTensorOffsets = 913,
  kPackNumbers = 1000,
  kPackPointers = 1001,
  kPackWorkspace = 1003,
  kMatmulType = 1500,
  kMatmulA = 1520,
  kMatmulB = 1521,
  kMatmulC = 1522,
  kMatmulOpOf = 1523,
  kMatmulRows = 1525,
  kMatmulColumns = 1526,
  kMatmulDepth = 1527,
  kReductionIs = 1600,
  kReductionType = 1601,
  kReductionX = 1610,
  kReductionY = 1611,
  kReductionOpOf = 1612,
  kReshapeX = 2200,
  kReshapeY = 2201,
  kDeviceJson = 2702,
};

}  // namespace dnn

// The functions of cuDNN that are used here.
struct CudnnLibrary {
  // Opens `path`, by default the library that libtorch_cuda.so has loaded. Returns nothing, and in `why_not`
  // the reason in one line, if it is not there, lacks a function or is not of version 9.19 or a later 9.
  static std::optional<CudnnLibrary> open(std::string& why_not, const std::string& path = "libcudnn.so.9");

  size_t (*version)() = nullptr;  // 91900 for 9.19.0
  const char* (*status_text)(dnn::Status) = nullptr;
  // Writes words for this thread's last error, ended with a zero.
  void (*last_error)(char* text, size_t bytes) = nullptr;
  // Makes a handle of the current device, which one thread at a time may use.
  dnn::Status (*create)(dnn::Handle*) = nullptr;
  dnn::Status (*set_stream)(dnn::Handle, void* stream) = nullptr;
  dnn::Status (*desc_create)(dnn::DescType, dnn::Desc*) = nullptr;
  dnn::Status (*desc_destroy)(dnn::Desc) = nullptr;
  dnn::Status (*desc_finalize)(dnn::Desc) = nullptr;
  dnn::Status (*desc_set)(dnn::Desc, dnn::Attribute, dnn::ValueType, int64_t count,
                          const void* values) = nullptr;
  dnn::Status (*desc_get)(dnn::Desc, dnn::Attribute, dnn::ValueType, int64_t most, int64_t* count,
                          void* values) = nullptr;
  // Enqueues a plan, and waits for nothing.
  dnn::Status (*execute)(dnn::Handle, dnn::Desc plan, dnn::Desc pack) = nullptr;
};

}  // namespace tessera::ops::cuda
