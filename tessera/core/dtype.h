// Element types of stored tensors, by their safetensors names.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace tessera {

enum class DType : uint8_t {
  Bool,
  U8,
  I8,
  F8E5M2,
  F8E4M3,
  I16,
  U16,
  F16,
  BF16,
  I32,
  U32,
  F32,
  F64,
  I64,
  U64
};

// Bytes of one element.
int64_t dtype_size(DType dtype);
// The safetensors name: "F32", "BF16", "F8_E4M3", ...
std::string_view dtype_name(DType dtype);
// Finds a type by that name; gives nothing for an unknown name.
std::optional<DType> parse_dtype(std::string_view name);
bool is_floating(DType dtype);

}  // namespace tessera
