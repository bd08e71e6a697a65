// Dequantisation of ggml's block formats to float32.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace tessera::io {

// The types that can be read; the values are ggml's type ids.
enum class GgmlType : uint32_t {
  F32 = 0,
  F16 = 1,
  Q4_0 = 2,
  Q4_1 = 3,
  Q5_0 = 6,
  Q5_1 = 7,
  Q8_0 = 8,
  Q2_K = 10,
  Q3_K = 11,
  Q4_K = 12,
  Q5_K = 13,
  Q6_K = 14,
  IQ4_NL = 20,
  IQ4_XS = 23,
  BF16 = 30,
  MXFP4 = 39,
  NVFP4 = 40,
};

// Returns the type with ggml's type id `id`, or nothing for an id that is not in the list above.
std::optional<GgmlType> parse_ggml_type(uint32_t id);
// Returns ggml's name of a type, such as "Q4_K", also for types that cannot be read; "type 99" for an unknown
// id.
std::string ggml_type_name(uint32_t id);
// Tells whether a device's own kernels expand blocks of the type; others are expanded on the host.
bool expands_on_devices(GgmlType type);
// Number of elements, and of bytes, of one block. A row of a tensor holds whole blocks.
int64_t ggml_block_elements(GgmlType type);
int64_t ggml_block_bytes(GgmlType type);

// Expands `num_blocks` consecutive blocks into ggml_block_elements(type) floats each.
void dequantize_ggml(GgmlType type, const void* blocks, int64_t num_blocks, float* destination);

}  // namespace tessera::io
