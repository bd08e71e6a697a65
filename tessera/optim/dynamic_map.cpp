#include "tessera/optim/dynamic_map.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <vector>

namespace tessera::optim {
namespace {

// Returns `count` values from 0.1 to 1, as torch.linspace gives them where it fuses.
std::vector<float> spread(int count) {
  const float first = 0.1F, last = 1.0F;
  const float step = (last - first) / static_cast<float>(count - 1);
  std::vector<float> values;
  for (int i = 0; i < count; ++i) {
    values.push_back(i < count / 2 ? std::fma(step, static_cast<float>(i), first)
                                   : std::fma(-step, static_cast<float>(count - 1 - i), last));
  }
  return values;
}

}  // namespace

DynamicMap::DynamicMap(bool is_signed) {
  std::vector<float> all = {0.0F, 1.0F};
  for (int exponent = 0; exponent < 7; ++exponent) {
    const auto scale = static_cast<float>(std::pow(10.0, exponent - 6));
    const std::vector<float> edges = spread((1 << (is_signed ? exponent : exponent + 1)) + 1);
    for (size_t i = 0; i + 1 < edges.size(); ++i) {
      const float value = scale * ((edges[i] + edges[i + 1]) / 2.0F);
      all.push_back(value);
      if (is_signed) all.push_back(-value);
    }
  }
  std::ranges::sort(all);
  std::ranges::copy(all, values_.begin());
  for (size_t i = 0; i < borders_.size(); ++i) borders_[i] = (values_[i] + values_[i + 1]) * 0.5F;
  for (uint32_t bits = 0; bits < guesses_.size(); ++bits) {
    const auto x = std::bit_cast<float>(bits << 16U);
    // Infinity and NaN, which no tile holds, get a code like any other.
    const auto border = std::isnan(x) ? borders_.begin() : std::ranges::lower_bound(borders_, x);
    guesses_[bits] = static_cast<uint8_t>(border - borders_.begin());
  }
}

template <class T>
uint8_t DynamicMap::encode(T x) const {
  uint32_t code = guesses_[std::bit_cast<uint32_t>(static_cast<float>(x)) >> 16U];
  while (code > 0 && x <= static_cast<T>(borders_[code - 1])) --code;
  while (code < 255 && x > static_cast<T>(borders_[code])) ++code;
  return static_cast<uint8_t>(code);
}
template uint8_t DynamicMap::encode(float x) const;
template uint8_t DynamicMap::encode(double x) const;

const DynamicMap& DynamicMap::of_signed() {
  static const DynamicMap map(true);
  return map;
}

const DynamicMap& DynamicMap::of_unsigned() {
  static const DynamicMap map(false);
  return map;
}

}  // namespace tessera::optim
