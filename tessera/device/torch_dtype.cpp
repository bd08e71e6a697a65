#include "tessera/device/torch_dtype.h"

#include <string>

#include "tessera/core/error.h"

namespace tessera {

at::ScalarType to_scalar_type(DType dtype) {
  switch (dtype) {
    case DType::Bool: return at::kBool;
    case DType::U8: return at::kByte;
    case DType::I8: return at::kChar;
    case DType::F8E5M2: return at::kFloat8_e5m2;
    case DType::F8E4M3: return at::kFloat8_e4m3fn;
    case DType::I16: return at::kShort;
    case DType::U16: return at::kUInt16;
    case DType::F16: return at::kHalf;
    case DType::BF16: return at::kBFloat16;
    case DType::I32: return at::kInt;
    case DType::U32: return at::kUInt32;
    case DType::F32: return at::kFloat;
    case DType::F64: return at::kDouble;
    case DType::I64: return at::kLong;
    case DType::U64: return at::kUInt64;
  }
  TESSERA_ASSERT(false, "unknown dtype");
}

std::optional<DType> find_dtype(at::ScalarType type) {
  switch (type) {
    case at::kBool: return DType::Bool;
    case at::kByte: return DType::U8;
    case at::kChar: return DType::I8;
    case at::kFloat8_e5m2: return DType::F8E5M2;
    case at::kFloat8_e4m3fn: return DType::F8E4M3;
    case at::kShort: return DType::I16;
    case at::kUInt16: return DType::U16;
    case at::kHalf: return DType::F16;
    case at::kBFloat16: return DType::BF16;
    case at::kInt: return DType::I32;
    case at::kUInt32: return DType::U32;
    case at::kFloat: return DType::F32;
    case at::kDouble: return DType::F64;
    case at::kLong: return DType::I64;
    case at::kUInt64: return DType::U64;
    default: return std::nullopt;
  }
}

DType to_dtype(at::ScalarType type) {
  const auto found = find_dtype(type);
  TESSERA_ASSERT(found.has_value(), std::string("no stored type for ") + c10::toString(type));
  return *found;
}

}  // namespace tessera
