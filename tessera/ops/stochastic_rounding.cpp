#include "tessera/ops/stochastic_rounding.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include <ATen/ATen.h>

#include "tessera/core/check_argument.h"
#include "tessera/device/device.h"
#include "tessera/ops/counter_words.h"
#include "tessera/ops/kernels/kernels.h"
#include "tessera/ops/support.h"

namespace tessera::ops {
namespace {

constexpr int64_t kDrawn = 1024;  // elements whose random bits are drawn at a time

uint16_t rounded(float value, uint16_t random) {
  const auto bits = std::bit_cast<uint32_t>(value);
  // The sum could carry a NaN's or infinity's bits over into other values.
  if ((bits & 0x7F800000U) == 0x7F800000U)
    return static_cast<uint16_t>((bits >> 16U) | (std::isnan(value) ? 0x40U : 0U));
  return static_cast<uint16_t>((bits + random) >> 16U);
}

}  // namespace

void RoundingBits::draw(int64_t begin, int64_t end, uint16_t* bits) const {
  std::array<uint32_t, kDrawn / 2 + 4> words;
  const int64_t row = begin / numbers.width;
  auto number = static_cast<uint64_t>(numbers.first_of(row) + (begin - row * numbers.width));
  while (begin < end) {
    const int64_t count = std::min(end - begin, kDrawn);
    const auto skip = static_cast<int64_t>(number % 8);
    kernels::philox_blocks(number / 8, step, rng.key(), words.data(), (skip + count + 7) / 8);
    std::memcpy(bits, reinterpret_cast<const char*>(words.data()) + 2 * skip, 2 * static_cast<size_t>(count));
    bits += count;
    begin += count;
    number += static_cast<uint64_t>(count);
  }
}

at::Tensor RoundingBits::on_device(int64_t begin, int64_t end, at::Device device) const {
  const at::Tensor number = numbers_of_elements(numbers, begin, end, device);
  const at::Tensor word = counter_words(rng, step, number.bitwise_right_shift(1));
  return at::where(number.bitwise_and(1).eq(1), word.bitwise_right_shift(16), word)
      .bitwise_and(0xFFFF)
      .to(at::kInt);
}

at::Tensor rounded_by(const at::Tensor& bits, const at::Tensor& x) {
  const at::Tensor narrowed = x.to(at::kFloat), as_int = narrowed.view(at::kInt);
  const at::Tensor of_nan = narrowed.isnan().to(at::kInt) * 0x40;
  const at::Tensor special = as_int.bitwise_right_shift(16).bitwise_or(of_nan);
  const at::Tensor sum = (as_int + bits).bitwise_right_shift(16);
  return at::where(narrowed.isfinite(), sum, special).to(at::kShort).view(at::kBFloat16);
}

void round_into(const at::Tensor& to, const at::Tensor& from, const RoundingBits& bits) {
  TESSERA_CHECK_ARGUMENT(to.is_contiguous() && from.is_contiguous() && to.numel() == from.numel() &&
                             to.scalar_type() == at::kBFloat16 && from.scalar_type() == at::kFloat &&
                             bits.numbers.of_rows == nullptr,
                         "round_into() is from float32 to bfloat16, both dense and of one size");
  const int64_t numel = to.numel();
  if (to.is_meta()) return;
  if (to.device() != kHost) {
    to.copy_(rounded_by(bits.on_device(0, numel, to.device()), from));
    return;
  }
  const float* const source = read<float>(from);
  auto* const target = reinterpret_cast<uint16_t*>(write<kernels::Bf16>(to));
  std::array<uint16_t, kDrawn> random;
  for (int64_t i = 0; i < numel;) {
    const int64_t row_end = (i / bits.numbers.width + 1) * bits.numbers.width;
    const int64_t end = std::min({row_end, numel, i + kDrawn});
    bits.draw(i, end, random.data());
    for (int64_t k = i; k < end; ++k) target[k] = rounded(source[k], random[static_cast<size_t>(k - i)]);
    i = end;
  }
}

}  // namespace tessera::ops
