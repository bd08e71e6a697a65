// Products of up to 16 rows of x and a coded weight, read as vector_codes.h tells, for each kind of vector
// unit. Included by units_*.cpp after vector_plain.h, whose sums these equal to the last bit; TESSERA_VEC
// names the namespace.
#pragma once

#include "tessera/ops/kernels/vector_codes.h"

namespace tessera::ops::kernels::TESSERA_VEC {

static_assert(kPartCodes == kPartDepth && kCodeRows == kTileLines);

// Adds to the sums of each tile the products of one run of depths: scale and code of each tile, and `Rows`
// rows of x, [depths, Rows].
template <class Form, int64_t Rows, int64_t Tiles>
TESSERA_INLINE void add_run(const CodePart (&parts)[Tiles], int64_t run, const float* x,
                            Vec (&sums)[Tiles][Rows]) {
  Vec scales[Tiles], offsets[Tiles];
  for (int64_t i = 0; i < Tiles; ++i) {
    scales[i] = load(parts[i].scales[run]);
    offsets[i] = Form::kHasOffset ? load(parts[i].offsets[run]) : zero();
  }
  for (int64_t first = 0; first < Form::kRun; first += kWords) {
    alignas(64) int8_t turned[Tiles][kWords][kCodeRows];
    for (int64_t i = 0; i < Tiles; ++i)
      turn_codes(parts[i].codes, run * parts[i].run_stride + first, turned[i]);
    // A code is widened as it is loaded; kept in registers, it would have to be taken out of these first.
    __asm__("" : "+m"(turned));
    for (int64_t word = 0; word < kWords; ++word, x += Rows) {
#pragma GCC unroll 2
      for (int64_t i = 0; i < Tiles; ++i) {
        add_line(Form::value(turned[i][word], scales[i], offsets[i]), x, sums[i]);
      }
    }
  }
}

// Multiplies `Tiles` tiles of 16 rows of codes, of which `outs` rows are there, by `Rows` rows of x, [depth,
// Rows], of which `rows` are there.
template <class Form, int64_t Rows, int64_t Tiles>
[[gnu::noinline]] void multiply_codes(const CodedMatrix& weights, int64_t outs, const float* x, int64_t depth,
                                      const float* bias, float* y, int64_t y_stride, int64_t rows) {
  CodePart parts[Tiles];
  // Rows that are not there are read as the last one.
  for (int64_t i = 0; i < Tiles * kCodeRows; ++i)
    parts[i / kCodeRows].blocks[i % kCodeRows] = weights.row(std::min(i, outs - 1));
  // The next tiles are fetched bit by bit, while these are multiplied: the rows are too short for the
  // processor to foresee them.
  const int64_t tile_bytes = Tiles * kCodeRows * weights.row_bytes;
  const int64_t fetched_bytes = tile_bytes * Form::kRun / depth;
  const uint8_t* ahead = weights.data + tile_bytes;
  Vec totals[Tiles][Rows];
  for (int64_t begin = 0; begin < depth; begin += kPartDepth) {
    Vec sums[Tiles][Rows];
    const int64_t codes = std::min(kPartDepth, depth - begin);
    const int64_t part_bytes = codes / weights.form.elements * weights.form.bytes;
    for (int64_t i = 0; i < Tiles; ++i) {
      clear(sums[i]);
      parts[i].num_blocks = codes / weights.form.elements;
      parts[i].elements = weights.form.elements;
      Form::read(parts[i]);
      for (const uint8_t*& block : parts[i].blocks) block += part_bytes;
    }
    for (int64_t run = 0; run * Form::kRun < codes; ++run, x += Form::kRun * Rows, ahead += fetched_bytes) {
      for (int64_t at = 0; at < fetched_bytes; at += 64) __builtin_prefetch(ahead + at, 0, 2);
      add_run<Form>(parts, run, x, sums);
    }
    for (int64_t i = 0; i < Tiles; ++i) add_part(begin == 0, sums[i], totals[i]);
  }
  for (int64_t i = 0; i < Tiles; ++i) {
    const int64_t first = i * kCodeRows;
    put_totals(totals[i], outs - first, bias == nullptr ? nullptr : bias + first, y + first, y_stride, rows);
  }
}

// Calls f with the form of the codes; does nothing, and returns false, for forms that are not read so.
template <class F>
TESSERA_INLINE bool with_code_form(const io::BlockForm& form, const F& f) {
  using io::BlockKind, io::GgmlType;
  if (form.kind != BlockKind::Ggml && (form.elements % 16 != 0 || kPartCodes % form.elements != 0))
    return false;
  switch (form.kind) {
    case BlockKind::Nf4: return f(FloatScaled<BlockKind::Nf4>()), true;
    case BlockKind::Fp4: return f(FloatScaled<BlockKind::Fp4>()), true;
    case BlockKind::E2m1: return f(FloatScaled<BlockKind::E2m1>()), true;
    case BlockKind::Int8: return f(FloatScaled<BlockKind::Int8>()), true;
    case BlockKind::LlmInt8: return f(FloatScaled<BlockKind::LlmInt8>()), true;
    case BlockKind::Affine4: return f(FloatScaled<BlockKind::Affine4>()), true;
    case BlockKind::Affine8: return f(FloatScaled<BlockKind::Affine8>()), true;
    case BlockKind::E4m3: return false;
    case BlockKind::Ggml: break;
  }
  switch (form.ggml) {
    case GgmlType::Q8_0: return f(BytesOf8()), true;
    case GgmlType::Q4_0: return f(LegacyNibbles<8, false, false>()), true;
    case GgmlType::Q4_1: return f(LegacyNibbles<0, true, false>()), true;
    case GgmlType::Q5_0: return f(LegacyNibbles<16, false, true>()), true;
    case GgmlType::Q5_1: return f(LegacyNibbles<0, true, true>()), true;
    case GgmlType::Q4_K: return f(NibblesOfK<false>()), true;
    case GgmlType::Q5_K: return f(NibblesOfK<true>()), true;
    case GgmlType::Q6_K: return f(SixBitsOfK()), true;
    case GgmlType::Q2_K: return f(TwoBitsOfK()), true;
    case GgmlType::Q3_K: return f(ThreeBitsOfK()), true;
    case GgmlType::IQ4_NL: return f(NonLinear()), true;
    case GgmlType::IQ4_XS: return f(NonLinearOfK()), true;
    case GgmlType::MXFP4: return f(Microscaled()), true;
    default: return false;
  }
}

// Does what multiply_few() does for `outs` rows of a coded weight, if it knows their form; else returns
// false.
inline bool multiply_few_coded(const CodedMatrix& weights, int64_t outs, const float* x, int64_t rows,
                               int64_t depth, const float* bias, float* y, int64_t y_stride) {
  return with_code_form(weights.form, [&](auto form) {
    with_width_of(rows, [&](auto width) {
      // Sums over one row of x wait for each other, so it is multiplied by two tiles of outputs at a time.
      constexpr int64_t kTile = (width <= 2 ? 2 : 1) * kTileLines;
      for (int64_t out = 0; out < outs; out += kTile) {
        CodedMatrix tiles = weights;
        tiles.data = weights.row(out);
        multiply_codes<decltype(form), width, kTile / kTileLines>(
            tiles, std::min(kTile, outs - out), x, depth, bias == nullptr ? nullptr : bias + out, y + out,
            y_stride, rows);
      }
    });
  });
}

}  // namespace tessera::ops::kernels::TESSERA_VEC
