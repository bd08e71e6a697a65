#include "tessera/ops/kernels/row_codes.h"

#include <algorithm>

#include <float.h>

#include "tessera/ops/kernels/code_rounding.h"

namespace tessera::ops::kernels {
namespace {

template <class T>
TESSERA_INLINE int encode(const T* from, int64_t rows, const CodedRow& form, uint8_t* to) {
  float x[CodedRow::kLargestBlock];
  int8_t codes[CodedRow::kLargestBlock + 1];
  for (int64_t row = 0; row < rows; ++row, from += form.width, to += form.row_bytes) {
    uint8_t* out = to + form.num_blocks * static_cast<int64_t>(sizeof(float));
    for (int64_t b = 0; b < form.num_blocks; ++b) {
      const int64_t begin = b * form.block, n = std::min(form.block, form.width - begin);
      for (int64_t i = 0; i < n; ++i) x[i] = static_cast<float>(load(from[begin + i]));
      const float scale = largest_magnitude(x, n) / form.largest_code();
      memcpy(to + b * static_cast<int64_t>(sizeof scale), &scale, sizeof scale);
      round_to_codes(x, n, scale > FLT_MIN ? 1.0f / scale : 0.0f, codes);
      if (form.bits == 8) {
        memcpy(out, codes, static_cast<size_t>(n));
        out += n;
        continue;
      }
      codes[n] = 0;
      for (int64_t i = 0; i < n; i += 2) {
        *out++ = static_cast<uint8_t>(((codes[i] + 8) & 15) | (((codes[i + 1] + 8) & 15) << 4));
      }
    }
  }
  return 0;
}

template <class T>
TESSERA_INLINE int decode(const uint8_t* from, int64_t rows, const CodedRow& form, T* to, bool adds) {
  int8_t codes[CodedRow::kLargestBlock + 1];
  for (int64_t row = 0; row < rows; ++row, from += form.row_bytes, to += form.width) {
    const uint8_t* in = from + form.num_blocks * static_cast<int64_t>(sizeof(float));
    for (int64_t b = 0; b < form.num_blocks; ++b) {
      const int64_t begin = b * form.block, n = std::min(form.block, form.width - begin);
      float scale;
      memcpy(&scale, from + b * static_cast<int64_t>(sizeof scale), sizeof scale);
      if (form.bits == 8) {
        memcpy(codes, in, static_cast<size_t>(n));
        in += n;
      } else {
        for (int64_t i = 0; i < n; i += 2, ++in) {
          codes[i] = static_cast<int8_t>((*in & 15) - 8);
          codes[i + 1] = static_cast<int8_t>((*in >> 4) - 8);
        }
      }
      T* const values = to + begin;
      if (adds) {
        for (int64_t i = 0; i < n; ++i)
          store(values[i], load(values[i]) + static_cast<float>(codes[i]) * scale);
      } else {
        for (int64_t i = 0; i < n; ++i) store(values[i], static_cast<float>(codes[i]) * scale);
      }
    }
  }
  return 0;
}

}  // namespace

#define TESSERA_DEFINE(T)                                                                       \
  void encode_rows(const T* from, int64_t rows, const CodedRow& form, uint8_t* to) {            \
    TESSERA_BEST_ISA(encode(from, rows, form, to));                                             \
  }                                                                                             \
  void decode_rows(const uint8_t* from, int64_t rows, const CodedRow& form, T* to, bool adds) { \
    TESSERA_BEST_ISA(decode(from, rows, form, to, adds));                                       \
  }
TESSERA_DEFINE(float)
TESSERA_DEFINE(double)
TESSERA_DEFINE(Bf16)
#undef TESSERA_DEFINE

}  // namespace tessera::ops::kernels
