// Products of rows of x and coded weights in whole numbers, for processors that multiply bytes and add the
// products (AVX512_VNNI). Included by units_avx512.cpp after vector_units.h.
//
// [Note: digits] Codes that are whole numbers need not become floats. 32 elements of x become whole numbers
// of up to 22 bits and a sign, times a power of two that the largest of them decides, and each whole number
// becomes three digits, signed bytes of base 256. Sums of products of bytes are exact, so those over a run of
// codes are rounded where the sums of the three digits are joined, and are nearer to the exact ones than sums
// of floats are. One instruction multiplies 64 codes by a digit, where floats take four, and four more each
// for widening the codes. A row's results have the same bits beside any other rows.
#pragma once

#pragma GCC push_options
#pragma GCC target("avx512vnni")

namespace tessera::ops::kernels::avx512 {

inline constexpr int kDigits = 3;

// A run of one row of x, whose elements have a power of two in common. Sums are those of the first 16
// elements, of the last 16 and of all.
struct DigitRun {
  int32_t words[kDigits][kDigitRun / 4];  // four bytes each; the highest digits come first
  int32_t starts[3][kDigits];             // -128 times the sums of digits, since codes are stored 128 larger
  float scale;                            // the power of two; NaN if an element is not finite
  float sums[3];                          // of the elements
  int32_t unused[3];
};
static_assert(sizeof(DigitRun) == kDigitRunBytes);

TESSERA_INLINE void pack_run(const float* x, DigitRun& to) {
  constexpr uint32_t kExponent = 0x7f800000;
  const Vec halves[2] = {load(x), load(x + 16)};
  const Row magnitudes = _mm512_max_epu32(_mm512_castps_si512(_mm512_abs_ps(halves[0])),
                                          _mm512_castps_si512(_mm512_abs_ps(halves[1])));
  const uint32_t largest = _mm512_reduce_max_epu32(magnitudes) & kExponent;
  // An element x = m 2^e, with m < 2, becomes x 2^(21 - e) < 2^22.
  const uint32_t exponent = std::max(largest >> 23, uint32_t{24});
  to.scale = largest == kExponent ? std::numeric_limits<float>::quiet_NaN() : float_of((exponent - 21) << 23);
  const Vec factor = all(float_of((275 - exponent) << 23));
  int32_t sums[3][kDigits];
  for (int half = 0; half < 2; ++half) {
    // Bytes of a number plus 128 in each are digits plus 128.
    const Row raised =
        _mm512_add_epi32(_mm512_cvtps_epi32(mul(halves[half], factor)), _mm512_set1_epi32(0x808080));
    for (int digit = 0; digit < kDigits; ++digit) {
      const __m128i bytes =
          _mm512_cvtepi32_epi8(_mm512_srli_epi32(raised, 8 * static_cast<unsigned>(kDigits - 1 - digit)));
      store_bytes(&to.words[digit][4 * half], _mm_xor_si128(bytes, _mm_set1_epi8(-128)));
      const __m128i pair = _mm_sad_epu8(bytes, _mm_setzero_si128());
      sums[half][digit] = _mm_extract_epi32(pair, 0) + _mm_extract_epi32(pair, 2) - 16 * 128;
    }
  }
  for (int digit = 0; digit < kDigits; ++digit) sums[2][digit] = sums[0][digit] + sums[1][digit];
  for (int part = 0; part < 3; ++part) {
    for (int digit = 0; digit < kDigits; ++digit) to.starts[part][digit] = -128 * sums[part][digit];
    to.sums[part] =
        static_cast<float>((sums[part][0] * 256 + sums[part][1]) * 256 + sums[part][2]) * to.scale;
  }
}

inline void pack_digits(const float* x, int64_t stride, int64_t rows, int64_t depth, void* to) {
  auto* run = static_cast<DigitRun*>(to);
  for (int64_t at = 0; at < depth; at += kDigitRun) {
    for (int64_t row = 0; row < rows; ++row) pack_run(x + row * stride + at, *run++);
  }
}

// Writes words[depth / 4] = four codes of each row, plus 128, for a run of codes.
template <class Form>
TESSERA_INLINE void turn_run(const CodePart& part, int64_t run, Row* words) {
  const Row raise = _mm512_set1_epi8(-128);
#pragma GCC unroll 2
  for (int64_t first = 0; first < Form::kRun; first += 16, words += 4) {
    const int64_t at = run * part.run_stride + first;
    const Row a = four_rows(part.codes, at, 0), b = four_rows(part.codes, at, 1),
              c = four_rows(part.codes, at, 2), d = four_rows(part.codes, at, 3);
    const Row ab_low = _mm512_unpacklo_epi32(a, b), ab_high = _mm512_unpackhi_epi32(a, b),
              cd_low = _mm512_unpacklo_epi32(c, d), cd_high = _mm512_unpackhi_epi32(c, d);
    words[0] = _mm512_xor_si512(_mm512_unpacklo_epi64(ab_low, cd_low), raise);
    words[1] = _mm512_xor_si512(_mm512_unpackhi_epi64(ab_low, cd_low), raise);
    words[2] = _mm512_xor_si512(_mm512_unpacklo_epi64(ab_high, cd_high), raise);
    words[3] = _mm512_xor_si512(_mm512_unpackhi_epi64(ab_high, cd_high), raise);
  }
}

template <int64_t Words>
struct TurnedRun {
  Row words[Words];
  Row operator[](int64_t i) const { return words[i]; }
};

// Adds to the totals of `Rows` rows of x, whose runs lie `stride` apart, the products of a part.
// words_of(run) returns what turn_run() writes.
template <class Form, int64_t Rows, class Words>
TESSERA_INLINE void add_digits(const Words& words_of, const CodePart& part, int64_t codes, const DigitRun* x,
                               int64_t stride, float (*totals)[kCodeRows]) {
  Vec sums[Rows];
#pragma GCC unroll 4
  for (int64_t row = 0; row < Rows; ++row) sums[row] = load(totals[row]);
  for (int64_t run = 0; run * Form::kRun < codes; ++run) {
    const int64_t at = run * Form::kRun, half = Form::kRun == kDigitRun ? 2 : run % 2;
    const int64_t first = at % kDigitRun / 4;
    const DigitRun* const own = x + at / kDigitRun * stride;
    const auto words = words_of(run);
    Row products[Rows][kDigits];
#pragma GCC unroll 4
    for (int64_t row = 0; row < Rows; ++row) {
#pragma GCC unroll 3
      for (int digit = 0; digit < kDigits; ++digit)
        products[row][digit] = _mm512_set1_epi32(own[row].starts[half][digit]);
    }
#pragma GCC unroll 8
    for (int word = 0; word < Form::kRun / 4; ++word) {
      const Row four_codes = words[word];
#pragma GCC unroll 4
      for (int64_t row = 0; row < Rows; ++row) {
#pragma GCC unroll 3
        for (int digit = 0; digit < kDigits; ++digit) {
          const Row four_digits = _mm512_set1_epi32(own[row].words[digit][first + word]);
          products[row][digit] = _mm512_dpbusd_epi32(products[row][digit], four_codes, four_digits);
        }
      }
    }
    const Vec scale = load(part.scales[run]);
#pragma GCC unroll 4
    for (int64_t row = 0; row < Rows; ++row) {
      const auto product = [&](int digit) { return _mm512_cvtepi32_ps(products[row][digit]); };
      const Vec low = multiply_add(product(1), all(256.0f), product(2)),
                joined = multiply_add(product(0), all(65536.0f), low);
      sums[row] = multiply_add(joined, mul(scale, all(own[row].scale)), sums[row]);
      if constexpr (Form::kHasOffset)
        sums[row] = _mm512_fnmadd_ps(load(part.offsets[run]), all(own[row].sums[half]), sums[row]);
    }
  }
#pragma GCC unroll 4
  for (int64_t row = 0; row < Rows; ++row) store(totals[row], sums[row]);
}

// Multiplies a tile of 16 rows of codes, of which `outs` are there, by all rows of x.
template <class Form>
[[gnu::noinline]] void multiply_digit_tile(const CodedMatrix& weights, int64_t outs, const DigitRun* x,
                                           int64_t rows, int64_t depth, const float* bias, float* y,
                                           int64_t y_stride) {
  CodePart part;
  // Rows that are not there are read as the last one.
  for (int64_t i = 0; i < kCodeRows; ++i) part.blocks[i] = weights.row(std::min(i, outs - 1));
  part.elements = weights.form.elements;
  // The next tile is fetched bit by bit, while this one is multiplied.
  const int64_t tile_bytes = kCodeRows * weights.row_bytes, fetched_bytes = tile_bytes * Form::kRun / depth;
  const uint8_t* ahead = weights.data + tile_bytes;
  const auto fetch = [&] {
    for (int64_t at = 0; at < fetched_bytes; at += 64) __builtin_prefetch(ahead + at, 0, 2);
    ahead += fetched_bytes;
  };
  constexpr int64_t kRunWords = Form::kRun / 4;
  alignas(64) float totals[kMostDigitRows][kCodeRows];
  for (int64_t row = 0; row < rows; ++row) store(totals[row], zero());
  for (int64_t begin = 0; begin < depth; begin += kPartCodes) {
    const int64_t codes = std::min(kPartCodes, depth - begin);
    part.num_blocks = codes / part.elements;
    Form::read(part);
    if (rows == 1) {
      const auto turned = [&](int64_t run) {
        TurnedRun<kRunWords> words;
        fetch();
        turn_run<Form>(part, run, words.words);
        return words;
      };
      add_digits<Form, 1>(turned, part, codes, x, 1, totals);
    } else {
      Row words[kPartCodes / 4];
      for (int64_t run = 0; run * Form::kRun < codes; ++run) {
        fetch();
        turn_run<Form>(part, run, words + run * kRunWords);
      }
      const auto turned = [&](int64_t run) { return words + run * kRunWords; };
      int64_t row = 0;
      for (; row + 4 <= rows; row += 4) add_digits<Form, 4>(turned, part, codes, x + row, rows, totals + row);
      for (; row < rows; ++row) add_digits<Form, 1>(turned, part, codes, x + row, rows, totals + row);
    }
    for (const uint8_t*& block : part.blocks) block += part.num_blocks * weights.form.bytes;
    x += codes / kDigitRun * rows;
  }
  const Mask mask = first_of(outs);
  for (int64_t row = 0; row < rows; ++row) {
    const Vec total = load(totals[row]);
    store(y + row * y_stride, mask, bias == nullptr ? total : add(total, load(bias, mask)));
  }
}

// Calls f with the form of the codes, if it has whole numbers and digits suit its blocks; returns whether.
template <class F>
TESSERA_INLINE bool with_digit_form(const io::BlockForm& form, const F& f) {
  bool is_known = false;
  if (form.elements % kDigitRun != 0) return false;
  with_code_form(form, [&](auto known) {
    if constexpr (std::is_base_of_v<ScaledCode, decltype(known)> ||
                  std::is_base_of_v<OffsetCode, decltype(known)>) {
      f(known);
      is_known = true;
    }
  });
  return is_known;
}

inline bool has_digit_form(const io::BlockForm& form) {
  return with_digit_form(form, [](auto) {});
}

inline void multiply_digits(const CodedMatrix& weights, int64_t outs, const void* x, int64_t rows,
                            int64_t depth, const float* bias, float* y, int64_t y_stride) {
  with_digit_form(weights.form, [&](auto form) {
    for (int64_t out = 0; out < outs; out += kCodeRows) {
      CodedMatrix tile = weights;
      tile.data = weights.row(out);
      multiply_digit_tile<decltype(form)>(tile, std::min(kCodeRows, outs - out),
                                          static_cast<const DigitRun*>(x), rows, depth,
                                          bias == nullptr ? nullptr : bias + out, y + out, y_stride);
    }
  });
}

inline void add_digit_products(Units<float>& units) {
  units.has_digit_form = has_digit_form;
  units.pack_digits = pack_digits;
  units.multiply_digits = multiply_digits;
}

}  // namespace tessera::ops::kernels::avx512

#pragma GCC pop_options
