#include "tessera/io/ggml_quantize.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "tessera/core/error.h"
#include "tessera/core/float_cast.h"

namespace tessera::io {
namespace {

// Below this a group of values counts as zeros.
constexpr float kLeastGroup = 1e-15f;

// Writes `value` as a half, and returns what the half holds.
float store_half(float value, uint8_t* to) {
  const uint16_t half = float_to_half(value);
  std::memcpy(to, &half, sizeof half);
  float held;
  dequantize_ggml(GgmlType::F16, to, 1, &held);
  return held;
}

// Rounds to the nearest integer, ties to even, without a call, so that loops become vector code: for a number
// between -2^22 and 2^22 the sum has the integer in its lowest bits.
inline int nearest(float value) {
  return (std::bit_cast<int32_t>(value + 12582912.0f) & 0x7fffff) - 0x400000;
}

// Returns 1 / scale; 0 for a scale so small that this is not finite.
float inverse_of(float scale) {
  const float inverse = 1.0f / scale;
  return std::isfinite(inverse) ? inverse : 0.0f;
}

// Returns the value of the largest magnitude, the first of several.
float largest_of(const float* values, int count) {
  float largest = 0.0f;
  for (int i = 0; i < count; ++i) {
    if (std::fabs(values[i]) > std::fabs(largest)) largest = values[i];
  }
  return largest;
}

// Fills blocks of Q4_0 or Q5_0, whose layouts ggml_quants.cpp tells: the value of the largest magnitude
// becomes -kZero.
template <int kZero>
void quantize_legacy(const float* values, int64_t num_blocks, uint8_t* to) {
  constexpr bool kHasFifthBit = kZero == 16;
  constexpr int kNibbles = kHasFifthBit ? 6 : 2;
  for (int64_t block = 0; block < num_blocks; ++block, values += 32, to += kNibbles + 16) {
    const float scale = largest_of(values, 32) / static_cast<float>(-kZero);
    const float inverse = inverse_of(scale);
    store_half(scale, to);
    const auto level = [&](int i) {
      const float shifted = values[i] * inverse + (static_cast<float>(kZero) + 0.5f);
      return static_cast<uint32_t>(std::min(2 * kZero - 1, static_cast<int>(shifted)));
    };
    uint32_t fifth = 0;
    for (int i = 0; i < 16; ++i) {
      const uint32_t low = level(i), high = level(i + 16);
      to[kNibbles + i] = static_cast<uint8_t>((low & 15) | (high & 15) << 4);
      fifth |= low >> 4 << i | high >> 4 << (i + 16);
    }
    if constexpr (kHasFifthBit) std::memcpy(to + 2, &fifth, sizeof fifth);
  }
}

void quantize_q8_0(const float* values, int64_t num_blocks, uint8_t* to) {
  for (int64_t block = 0; block < num_blocks; ++block, values += 32, to += 34) {
    const float scale = std::fabs(largest_of(values, 32)) / 127.0f;
    const float inverse = inverse_of(scale);
    store_half(scale, to);
    for (int i = 0; i < 32; ++i) {
      to[2 + i] = static_cast<uint8_t>(static_cast<int8_t>(std::round(values[i] * inverse)));
    }
  }
}

// A group of values as levels 0 to 15: scale * level - minimum.
struct Affine {
  float scale = 0.0f, minimum = 0.0f;
};

// The values of a group with their weights in the error that is made small.
struct Group {
  static constexpr int kCount = 32, kLevels = 15;
  const float* values;
  float weights[kCount], sum_weight = 0.0f, sum_value = 0.0f;

  explicit Group(const float* x) : values(x) {
    float sum_squares = 0.0f;
    for (int i = 0; i < kCount; ++i) sum_squares += x[i] * x[i];
    const float typical = std::sqrt(sum_squares / kCount);
    for (int i = 0; i < kCount; ++i) {
      weights[i] = typical + std::fabs(x[i]);
      sum_weight += weights[i];
      sum_value += weights[i] * x[i];
    }
  }
  void round_to_levels(float inverse, float begin, float* levels) const {
    for (int i = 0; i < kCount; ++i) {
      levels[i] = static_cast<float>(std::clamp(nearest(inverse * (values[i] - begin)), 0, kLevels));
    }
  }
  float error(const float* levels, float scale, float begin) const {
    float error = 0.0f;
    for (int i = 0; i < kCount; ++i) {
      const float difference = scale * levels[i] + begin - values[i];
      error += weights[i] * (difference * difference);
    }
    return error;
  }
};

// Finds the scale and the minimum of 32 values. Scales about the span of the values are tried, 22 in all;
// each gives levels, and these by least squares another scale and minimum, of which the best are taken. A
// minimum that is better than those before is also where the levels of the next scales begin.
Affine fit_affine(const float* x) {
  constexpr int kSteps = 20;
  const Group group(x);
  const auto [least, most] = std::minmax_element(x, x + Group::kCount);
  float begin = std::min(*least, 0.0f);
  const float end = *most;
  if (begin == end) return {0.0f, -begin};
  float levels[Group::kCount];
  const float first = Group::kLevels / (end - begin);
  float scale = 1.0f / first;
  group.round_to_levels(first, begin, levels);
  float least_error = group.error(levels, scale, begin);
  for (int step = 0; step <= kSteps; ++step) {
    group.round_to_levels((-1.0f + 0.1f * static_cast<float>(step) + Group::kLevels) / (end - begin), begin,
                          levels);
    float sum = 0.0f, sum_squares = 0.0f, sum_products = 0.0f;
    for (int i = 0; i < Group::kCount; ++i) {
      const float weighted = group.weights[i] * levels[i];
      sum += weighted;
      sum_squares += weighted * levels[i];
      sum_products += weighted * x[i];
    }
    const float determinant = group.sum_weight * sum_squares - sum * sum;
    if (!(determinant > 0.0f)) continue;
    float fitted = (group.sum_weight * sum_products - group.sum_value * sum) / determinant;
    float fitted_begin = (sum_squares * group.sum_value - sum * sum_products) / determinant;
    if (fitted_begin > 0.0f) {
      fitted_begin = 0.0f;
      fitted = sum_products / sum_squares;
    }
    const float error = group.error(levels, fitted, fitted_begin);
    if (error < least_error) {
      least_error = error;
      scale = fitted;
      begin = fitted_begin;
    }
  }
  return {scale, -begin};
}

// Packs 8 scales and 8 minimums of 6 bits each, as ggml_quants.cpp unpacks them.
void pack_scales(const int* scales, const int* minimums, uint8_t* packed) {
  for (int i = 0; i < 4; ++i) {
    packed[i] = static_cast<uint8_t>(scales[i] | scales[i + 4] >> 4 << 6);
    packed[i + 4] = static_cast<uint8_t>(minimums[i] | minimums[i + 4] >> 4 << 6);
    packed[i + 8] = static_cast<uint8_t>((scales[i + 4] & 15) | (minimums[i + 4] & 15) << 4);
  }
}

void quantize_q4_k(const float* values, int64_t num_blocks, uint8_t* to) {
  for (int64_t block = 0; block < num_blocks; ++block, values += 256, to += 144) {
    Affine groups[8];
    float largest_scale = 0.0f, largest_minimum = 0.0f;
    for (int group = 0; group < 8; ++group) {
      groups[group] = fit_affine(values + 32 * group);
      largest_scale = std::max(largest_scale, groups[group].scale);
      largest_minimum = std::max(largest_minimum, groups[group].minimum);
    }
    const float inverse_scale = largest_scale > 0.0f ? 63.0f / largest_scale : 0.0f;
    const float inverse_minimum = largest_minimum > 0.0f ? 63.0f / largest_minimum : 0.0f;
    int scales[8], minimums[8];
    for (int group = 0; group < 8; ++group) {
      scales[group] = std::clamp(nearest(inverse_scale * groups[group].scale), 0, 63);
      minimums[group] = std::clamp(nearest(inverse_minimum * groups[group].minimum), 0, 63);
    }
    const float scale = store_half(largest_scale / 63.0f, to);
    const float minimum = store_half(largest_minimum / 63.0f, to + 2);
    pack_scales(scales, minimums, to + 4);
    std::memset(to + 16, 0, 128);
    for (int group = 0; group < 8; ++group) {
      const float d = scale * static_cast<float>(scales[group]);
      const float m = minimum * static_cast<float>(minimums[group]);
      uint8_t* nibbles = to + 16 + group / 2 * 32;
      for (int i = 0; i < 32 && d != 0.0f; ++i) {
        const int q = std::clamp(nearest((values[32 * group + i] + m) / d), 0, 15);
        nibbles[i] |= static_cast<uint8_t>(q << (group % 2 * 4));
      }
    }
  }
}

// Finds the scale of 16 values that become scale * level, -32 to 31: of 19 scales about that of the largest
// magnitude, that of the least square error, weighted by the squares, after a least squares fit.
float fit_scale(const float* x) {
  constexpr int kCount = 16, kMax = 32;
  const float largest = largest_of(x, kCount);
  if (std::fabs(largest) < kLeastGroup) return 0.0f;
  float scale = 0.0f, best = 0.0f;
  // The widest scale comes first. A later one must be better.
  for (const int step : {0, -9, -8, -7, -6, -5, -4, -3, -2, -1, 1, 2, 3, 4, 5, 6, 7, 8, 9}) {
    const float inverse = -(kMax + 0.1f * static_cast<float>(step)) / largest;
    float level_value = 0.0f, level2 = 0.0f;
    for (int i = 0; i < kCount; ++i) {
      const auto level = static_cast<float>(std::clamp(nearest(inverse * x[i]), -kMax, kMax - 1));
      const float weight = x[i] * x[i];
      level_value += weight * x[i] * level;
      level2 += weight * level * level;
    }
    if (step == 0) {
      scale = level2 != 0.0f ? level_value / level2 : 0.0f;
    } else if (level2 > 0.0f && level_value * level_value > best * level2) {
      scale = level_value / level2;
    } else {
      continue;
    }
    best = scale * level_value;
  }
  return scale;
}

// Fills the levels of a block of Q6_K from `levels`, 0 to 63 each.
void pack_q6_k(const uint8_t* levels, uint8_t* to) {
  for (int half = 0; half < 2; ++half) {
    for (int i = 0; i < 32; ++i) {
      const uint8_t* q = levels + 128 * half + i;
      to[64 * half + i] = static_cast<uint8_t>((q[0] & 15) | (q[64] & 15) << 4);
      to[64 * half + 32 + i] = static_cast<uint8_t>((q[32] & 15) | (q[96] & 15) << 4);
      to[128 + 32 * half + i] =
          static_cast<uint8_t>(q[0] >> 4 | q[32] >> 4 << 2 | q[64] >> 4 << 4 | q[96] >> 4 << 6);
    }
  }
}

void quantize_q6_k(const float* values, int64_t num_blocks, uint8_t* to) {
  for (int64_t block = 0; block < num_blocks; ++block, values += 256, to += 210) {
    float scales[16];
    for (int group = 0; group < 16; ++group) scales[group] = fit_scale(values + 16 * group);
    const float largest = largest_of(scales, 16);
    if (std::fabs(largest) < kLeastGroup) {
      std::memset(to, 0, 210);
      continue;
    }
    const float inverse = -128.0f / largest;
    const float scale = store_half(1.0f / inverse, to + 208);
    uint8_t levels[256];
    for (int group = 0; group < 16; ++group) {
      const int rounded = std::min(127, nearest(inverse * scales[group]));
      to[192 + group] = static_cast<uint8_t>(static_cast<int8_t>(rounded));
      const float d = scale * static_cast<float>(rounded);
      for (int i = 16 * group; i < 16 * group + 16; ++i) {
        const int level = d != 0.0f ? std::clamp(nearest(values[i] / d), -32, 31) : 0;
        levels[i] = static_cast<uint8_t>(level + 32);
      }
    }
    pack_q6_k(levels, to);
  }
}

}  // namespace

void quantize_ggml(GgmlType type, const float* values, int64_t num_blocks, void* blocks) {
  auto* to = static_cast<uint8_t*>(blocks);
  switch (type) {
    case GgmlType::F32: return cast_from_float(values, num_blocks, DType::F32, blocks);
    case GgmlType::F16: return cast_from_float(values, num_blocks, DType::F16, blocks);
    case GgmlType::BF16: return cast_from_float(values, num_blocks, DType::BF16, blocks);
    case GgmlType::Q4_0: return quantize_legacy<8>(values, num_blocks, to);
    case GgmlType::Q5_0: return quantize_legacy<16>(values, num_blocks, to);
    case GgmlType::Q8_0: return quantize_q8_0(values, num_blocks, to);
    case GgmlType::Q4_K: return quantize_q4_k(values, num_blocks, to);
    case GgmlType::Q6_K: return quantize_q6_k(values, num_blocks, to);
    default: TESSERA_ASSERT(false, "no quantiser of " + ggml_type_name(static_cast<uint32_t>(type)));
  }
}

}  // namespace tessera::io
