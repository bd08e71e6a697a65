#include "tessera/io/weight_blocks.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "tessera/core/error.h"

namespace tessera::io {
namespace {

// bitsandbytes' values of NF4, as the bits of floats.
constexpr std::array<uint32_t, 16> kNf4Bits = {
    0xbf800000, 0xbf3239b1, 0xbf066b30, 0xbeca32a0, 0xbe91a24d, 0xbe3d353f, 0xbdba7871, 0x00000000,
    0x3da2faff, 0x3e24cae3, 0x3e7c04dd, 0x3ead033a, 0x3ee1a4b8, 0x3f1007ab, 0x3f3913b3, 0x3f800000};

constexpr std::array<float, 16> nf4_values() {
  std::array<float, 16> values{};
  for (size_t i = 0; i < 16; ++i) values[i] = std::bit_cast<float>(kNf4Bits[i]);
  return values;
}

// Puts the negatives of the first eight values behind them; that of zero is `negative_zero`.
constexpr std::array<float, 16> with_negatives(std::array<float, 16> values, float negative_zero) {
  for (size_t i = 0; i < 8; ++i) values[8 + i] = values[i] == 0.0f ? negative_zero : -values[i];
  return values;
}

constexpr std::array<float, 16> kNf4 = nf4_values();
constexpr std::array<float, 16> kFp4 =
    with_negatives({0.0f, 0.0052083333f, 0.66666667f, 1.0f, 0.33333333f, 0.5f, 0.16666667f, 0.25f}, 0.0f);
constexpr std::array<float, 16> kE2m1 =
    with_negatives({0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f}, -0.0f);

struct E4m3Values {
  std::array<float, 256> values;
  E4m3Values() {
    for (int code = 0; code < 256; ++code) {
      const int exponent = code >> 3 & 15, fraction = code & 7;
      float value = exponent == 0 ? std::ldexp(static_cast<float>(fraction), -9)
                                  : std::ldexp(static_cast<float>(8 + fraction), exponent - 10);
      if ((code & 0x7f) == 0x7f) value = std::bit_cast<float>(0x7fc00000u);
      values[static_cast<size_t>(code)] = code < 128 ? value : -value;
    }
  }
};

bool has_table(BlockKind kind) {
  return kind == BlockKind::Nf4 || kind == BlockKind::Fp4 || kind == BlockKind::E2m1;
}
bool has_nibbles(BlockKind kind) { return has_table(kind) || kind == BlockKind::Affine4; }

float load_float(const uint8_t* from) {
  float value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

// Expands the codes of one block.
void expand(const BlockForm& form, const uint8_t* block, float* to) {
  const float scale = load_float(block), zero = has_zero(form.kind) ? load_float(block + 4) : 0.0f;
  const uint8_t* codes = block + (has_zero(form.kind) ? 8 : 4);
  const auto nibble = [&](int64_t i) { return codes[i / 2] >> (i % 2 * 4) & 15; };
  const int64_t count = form.elements;
  switch (form.kind) {
    case BlockKind::Nf4:
    case BlockKind::Fp4:
    case BlockKind::E2m1: {
      const float* table = code_table(form.kind);
      for (int64_t i = 0; i < count; ++i) to[i] = table[nibble(i)] * scale;
      return;
    }
    case BlockKind::Int8:
      for (int64_t i = 0; i < count; ++i) to[i] = static_cast<float>(static_cast<int8_t>(codes[i])) * scale;
      return;
    case BlockKind::LlmInt8:
      for (int64_t i = 0; i < count; ++i) {
        to[i] = static_cast<float>(static_cast<int8_t>(codes[i])) * scale * (1.0f / 127.0f);
      }
      return;
    case BlockKind::E4m3:
      for (int64_t i = 0; i < count; ++i) to[i] = e4m3_table()[codes[i]] * scale;
      return;
    case BlockKind::Affine4:
      for (int64_t i = 0; i < count; ++i) to[i] = (static_cast<float>(nibble(i)) - zero) * scale;
      return;
    case BlockKind::Affine8:
      for (int64_t i = 0; i < count; ++i) to[i] = (static_cast<float>(codes[i]) - zero) * scale;
      return;
    case BlockKind::Ggml: break;
  }
}

// Returns torch.linspace(0.1, 1, n)[k] as its AVX2 code computes it: multiplied and added in one rounding.
float linspace_point(int64_t n, int64_t k) {
  const float begin = 0.1f, step = (1.0f - begin) / static_cast<float>(n - 1);
  return k < n / 2 ? std::fma(step, static_cast<float>(k), begin)
                   : std::fma(-step, static_cast<float>(n - 1 - k), 1.0f);
}

struct DynamicMap {
  std::array<float, 256> values;
  DynamicMap() {
    std::vector<float> all = {0.0f, 1.0f};
    for (int i = 0; i < 7; ++i) {
      const int64_t points = (int64_t{1} << i) + 1;
      const auto power = static_cast<float>(std::pow(10.0, i - 6));
      for (int64_t k = 0; k + 1 < points; ++k) {
        const float mean = (linspace_point(points, k) + linspace_point(points, k + 1)) / 2.0f;
        all.push_back(mean * power);
        all.push_back(-mean * power);
      }
    }
    std::sort(all.begin(), all.end());
    TESSERA_ASSERT(all.size() == values.size(), "the dynamic map has 256 values");
    std::copy(all.begin(), all.end(), values.begin());
  }
};

// The values of a four-bit kind in ascending order, each with its code.
struct SortedCodes {
  std::array<float, 15> points;  // between neighbours
  std::array<uint8_t, 16> codes;
  explicit SortedCodes(BlockKind kind) {
    const float* table = code_table(kind);
    for (size_t i = 0; i < 16; ++i) codes[i] = static_cast<uint8_t>(i);
    // FP4 has two zeros: the lower code comes first.
    std::sort(codes.begin(), codes.end(),
              [&](uint8_t a, uint8_t b) { return table[a] != table[b] ? table[a] < table[b] : a < b; });
    for (size_t i = 0; i < 15; ++i) points[i] = (table[codes[i]] + table[codes[i + 1]]) * 0.5f;
  }
};

const SortedCodes& sorted_codes(BlockKind kind) {
  static const SortedCodes nf4(BlockKind::Nf4), fp4(BlockKind::Fp4);
  return kind == BlockKind::Nf4 ? nf4 : fp4;
}

}  // namespace

BlockForm block_form(BlockKind kind, int64_t elements) {
  TESSERA_ASSERT(kind != BlockKind::Ggml && elements > 0, "a kind of block and its size");
  const int64_t head = has_zero(kind) ? 8 : 4;
  return {kind, GgmlType::F32, elements, head + (has_nibbles(kind) ? (elements + 1) / 2 : elements)};
}

BlockForm block_form(GgmlType type) {
  return {BlockKind::Ggml, type, ggml_block_elements(type), ggml_block_bytes(type)};
}

std::string name_of(const BlockForm& form) {
  static constexpr const char* kNames[] = {"",     "nf4",  "fp4",          "e2m1",        "int8",
                                           "int8", "e4m3", "4-bit affine", "8-bit affine"};
  if (form.kind == BlockKind::Ggml) return ggml_type_name(static_cast<uint32_t>(form.ggml));
  return std::string(kNames[static_cast<size_t>(form.kind)]) + ", blocks of " + std::to_string(form.elements);
}

const float* code_table(BlockKind kind) {
  TESSERA_ASSERT(has_table(kind), "a kind with a table");
  if (kind == BlockKind::Nf4) return kNf4.data();
  return kind == BlockKind::Fp4 ? kFp4.data() : kE2m1.data();
}

const float* e4m3_table() {
  static const E4m3Values table;
  return table.values.data();
}

void expand_blocks(const BlockForm& form, const void* blocks, int64_t num_blocks, float* values) {
  if (form.kind == BlockKind::Ggml) return dequantize_ggml(form.ggml, blocks, num_blocks, values);
  const auto* from = static_cast<const uint8_t*>(blocks);
  for (int64_t i = 0; i < num_blocks; ++i) expand(form, from + i * form.bytes, values + i * form.elements);
}

void write_block(const BlockForm& form, float scale, float zero, const uint8_t* codes, uint8_t* block) {
  TESSERA_ASSERT(form.kind != BlockKind::Ggml, "ggml's blocks are written by quantize_ggml()");
  std::memcpy(block, &scale, sizeof scale);
  uint8_t* to = block + 4;
  if (has_zero(form.kind)) {
    std::memcpy(to, &zero, sizeof zero);
    to += 4;
  }
  if (!has_nibbles(form.kind)) {
    std::memcpy(to, codes, static_cast<size_t>(form.elements));
    return;
  }
  for (int64_t i = 0; i < form.elements; i += 2) {
    const int high = i + 1 < form.elements ? codes[i + 1] : 0;
    to[i / 2] = static_cast<uint8_t>(codes[i] | high << 4);
  }
}

void split_blocks(const BlockForm& form, const uint8_t* row, int64_t first, int64_t count,
                  const BlockForm& small, uint8_t* to) {
  std::vector<uint8_t> codes(static_cast<size_t>(small.elements));
  const int64_t head = has_zero(form.kind) ? 8 : 4;
  for (int64_t at = first; at < first + count; at += small.elements, to += small.bytes) {
    const uint8_t* const block = row + at / form.elements * form.bytes;
    for (int64_t i = 0; i < small.elements; ++i) {
      const int64_t k = at % form.elements + i;
      const uint8_t* const stored = block + head;
      codes[static_cast<size_t>(i)] =
          has_nibbles(form.kind) ? static_cast<uint8_t>(stored[k / 2] >> (k % 2 * 4) & 15) : stored[k];
    }
    const float zero = has_zero(form.kind) ? load_float(block + 4) : 0.0f;
    write_block(small, load_float(block), zero, codes.data(), to);
  }
}

void code_in_four_bits(BlockKind kind, const float* values, int64_t count, float scale, bool is_short,
                       uint8_t* codes) {
  const SortedCodes& sorted = sorted_codes(kind);
  const float divisor = std::max(scale, 1e-38f), factor = 1.0f / divisor;
  constexpr int64_t kAtOnce = 256;
  std::array<float, kAtOnce> scaled;
  std::array<uint8_t, kAtOnce> indices;
  for (int64_t first = 0; first < count; first += kAtOnce) {
    const int64_t n = std::min(kAtOnce, count - first);
    for (int64_t i = 0; i < n; ++i) {
      const float x = values[first + i];
      scaled[static_cast<size_t>(i)] = is_short ? x / divisor : x * factor;
    }
    indices.fill(0);
    for (const float point : sorted.points) {
      for (size_t i = 0; i < static_cast<size_t>(n); ++i) indices[i] += scaled[i] > point;
    }
    for (int64_t i = 0; i < n; ++i) codes[first + i] = sorted.codes[indices[static_cast<size_t>(i)]];
  }
}

const float* dynamic_map() {
  static const DynamicMap map;
  return map.values.data();
}

void quantize_scales(std::vector<float>& scales) {
  constexpr size_t kGroup = 256;
  double sum = 0.0;
  for (const float scale : scales) sum += scale;
  const auto offset = static_cast<float>(sum / static_cast<double>(std::max<size_t>(scales.size(), 1)));
  const float* const map = dynamic_map();
  std::array<float, 255> points;
  for (size_t i = 0; i < points.size(); ++i) points[i] = (map[i] + map[i + 1]) * 0.5f;
  for (size_t first = 0; first < scales.size(); first += kGroup) {
    const size_t end = std::min(first + kGroup, scales.size());
    float largest = 0.0f;
    for (size_t i = first; i < end; ++i) largest = std::max(largest, std::fabs(scales[i] - offset));
    for (size_t i = first; i < end; ++i) {
      const float x = largest > 0.0f ? (scales[i] - offset) / largest : 0.0f;
      const auto code = std::lower_bound(points.begin(), points.end(), x) - points.begin();
      scales[i] = map[code] * largest + offset;
    }
  }
}

}  // namespace tessera::io
