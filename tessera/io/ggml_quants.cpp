#include "tessera/io/ggml_quants.h"

#include <array>
#include <string_view>

#include "tessera/core/error.h"
#include "tessera/io/ggml_expand.h"

namespace tessera::io {
namespace {

struct Format {
  GgmlType type;
  int64_t elements, bytes;  // in one block
};

constexpr std::array<Format, 17> kFormats = {{
    {GgmlType::F32, 1, 4},
    {GgmlType::F16, 1, 2},
    {GgmlType::Q4_0, 32, 18},
    {GgmlType::Q4_1, 32, 20},
    {GgmlType::Q5_0, 32, 22},
    {GgmlType::Q5_1, 32, 24},
    {GgmlType::Q8_0, 32, 34},
    {GgmlType::Q2_K, 256, 84},
    {GgmlType::Q3_K, 256, 110},
    {GgmlType::Q4_K, 256, 144},
    {GgmlType::Q5_K, 256, 176},
    {GgmlType::Q6_K, 256, 210},
    {GgmlType::IQ4_NL, 32, 18},
    {GgmlType::IQ4_XS, 256, 136},
    {GgmlType::BF16, 1, 2},
    {GgmlType::MXFP4, 32, 17},
    {GgmlType::NVFP4, 64, 36},
}};

// The name of each type id; empty for ids that were never given out or were taken back.
constexpr std::array<std::string_view, 43> kNames = {
    "F32",   "F16",    "Q4_0",  "Q4_1", "",     "",        "Q5_0",   "Q5_1",    "Q8_0",  "Q8_1",   "Q2_K",
    "Q3_K",  "Q4_K",   "Q5_K",  "Q6_K", "Q8_K", "IQ2_XXS", "IQ2_XS", "IQ3_XXS", "IQ1_S", "IQ4_NL", "IQ3_S",
    "IQ2_S", "IQ4_XS", "I8",    "I16",  "I32",  "I64",     "F64",    "IQ1_M",   "BF16",  "",       "",
    "",      "TQ1_0",  "TQ2_0", "",     "",     "",        "MXFP4",  "NVFP4",   "Q1_0",  "Q2_0"};

const Format& format_of(GgmlType type) {
  for (const Format& format : kFormats) {
    if (format.type == type) return format;
  }
  throw_internal(__FILE__, __LINE__, "known type",
                 "ggml type " + std::to_string(static_cast<uint32_t>(type)));
}

}  // namespace

std::optional<GgmlType> parse_ggml_type(uint32_t id) {
  for (const Format& format : kFormats) {
    if (static_cast<uint32_t>(format.type) == id) return format.type;
  }
  return std::nullopt;
}

std::string ggml_type_name(uint32_t id) {
  if (id < kNames.size() && !kNames[id].empty()) return std::string(kNames[id]);
  return "type " + std::to_string(id);
}

bool expands_on_devices(GgmlType type) {
  switch (type) {
    case GgmlType::Q2_K:
    case GgmlType::Q3_K:
    case GgmlType::IQ4_NL:
    case GgmlType::IQ4_XS:
    case GgmlType::MXFP4:
    case GgmlType::NVFP4: return false;
    default: return true;
  }
}

int64_t ggml_block_elements(GgmlType type) { return format_of(type).elements; }
int64_t ggml_block_bytes(GgmlType type) { return format_of(type).bytes; }

void dequantize_ggml(GgmlType type, const void* blocks, int64_t num_blocks, float* destination) {
  ggml::expand(type, static_cast<const uint8_t*>(blocks), num_blocks, destination);
}

}  // namespace tessera::io
