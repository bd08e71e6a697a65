#include "tessera/core/dtype.h"

#include <array>

namespace tessera {
namespace {

struct DTypeRow {
  DType dtype;
  std::string_view name;
  int64_t size;
  bool floating;
};

// The rows are in the order of the enum, by which row() finds them.
constexpr std::array<DTypeRow, 15> kDTypes = {{
    {DType::Bool, "BOOL", 1, false},
    {DType::U8, "U8", 1, false},
    {DType::I8, "I8", 1, false},
    {DType::F8E5M2, "F8_E5M2", 1, true},
    {DType::F8E4M3, "F8_E4M3", 1, true},
    {DType::I16, "I16", 2, false},
    {DType::U16, "U16", 2, false},
    {DType::F16, "F16", 2, true},
    {DType::BF16, "BF16", 2, true},
    {DType::I32, "I32", 4, false},
    {DType::U32, "U32", 4, false},
    {DType::F32, "F32", 4, true},
    {DType::F64, "F64", 8, true},
    {DType::I64, "I64", 8, false},
    {DType::U64, "U64", 8, false},
}};

const DTypeRow& row(DType dtype) { return kDTypes[static_cast<size_t>(dtype)]; }

}  // namespace

int64_t dtype_size(DType dtype) { return row(dtype).size; }
std::string_view dtype_name(DType dtype) { return row(dtype).name; }
bool is_floating(DType dtype) { return row(dtype).floating; }

std::optional<DType> parse_dtype(std::string_view name) {
  for (const DTypeRow& candidate : kDTypes) {
    if (candidate.name == name) return candidate.dtype;
  }
  return std::nullopt;
}

}  // namespace tessera
