#include "tessera/ops/counter_dropout.h"

#include <algorithm>
#include <array>
#include <string>
#include <type_traits>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "tessera/core/check_argument.h"
#include "tessera/core/device.h"
#include "tessera/core/rng.h"
#include "tessera/ops/support.h"

namespace tessera::ops {
namespace {

constexpr int64_t kBlocks = 256;  // counters drawn at a time
constexpr int64_t kGrain = 16384;

// Fills out[0, count) for the elements from `index` on: element i takes word i % 4 of counter i / 4, of which
// `convert(words, out, count)` makes values.
template <class T, class Convert>
void fill(const CounterRng& rng, uint64_t step, uint64_t index, const Convert& convert, T* out,
          int64_t count) {
  std::array<uint32_t, 4 * kBlocks> words;
  while (count > 0) {
    const int64_t skip = static_cast<int64_t>(index % 4);
    const int64_t taken = std::min<int64_t>(count, static_cast<int64_t>(words.size()) - skip);
    kernels::philox_blocks(index / 4, step, rng.key(), words.data(), (skip + taken + 3) / 4);
    convert(words.data() + skip, out, taken);
    index += static_cast<uint64_t>(taken);
    out += taken;
    count -= taken;
  }
}

// The low and the high half of a product of 32-bit numbers, which int64 holds without its sign.
std::pair<at::Tensor, at::Tensor> halves_of_product(const at::Tensor& a, int64_t factor) {
  constexpr int64_t kLow = 0xFFFFFFFF;
  const at::Tensor product = a * factor;
  return {product.bitwise_and(kLow), product.bitwise_right_shift(32).bitwise_and(kLow)};
}

// Philox4x32-10 in int64 (core/rng.h): word i % 4 of counter i / 4 for every element i of `index`.
at::Tensor words_of(const CounterRng& rng, uint64_t step, const at::Tensor& index) {
  constexpr int64_t kLow = 0xFFFFFFFF;
  const at::Tensor counter = index.bitwise_right_shift(2);
  at::Tensor c0 = counter.bitwise_and(kLow), c1 = counter.bitwise_right_shift(32);
  at::Tensor c2 = at::full_like(index, static_cast<int64_t>(step & kLow));
  at::Tensor c3 = at::full_like(index, static_cast<int64_t>(step >> 32));
  auto [k0, k1] = rng.key();
  for (int round = 0; round < 10; ++round) {
    const auto [low0, high0] = halves_of_product(c0, 0xD2511F53);
    const auto [low1, high1] = halves_of_product(c2, 0xCD9E8D57);
    c0 = high1.bitwise_xor(c1).bitwise_xor(int64_t{k0});
    c1 = low1;
    c2 = high0.bitwise_xor(c3).bitwise_xor(int64_t{k1});
    c3 = low0;
    k0 += 0x9E3779B9U;
    k1 += 0xBB67AE85U;
  }
  return at::stack({c0, c1, c2, c3}).gather(0, index.bitwise_and(3).unsqueeze(0)).squeeze(0);
}

// Of every element of `mask` its number, where runs of `run` elements have successive ones.
at::Tensor elements(const at::Tensor& mask, int64_t run, int64_t first_index, int64_t row_width) {
  const at::Tensor i = at::arange(mask.numel(), mask.options().dtype(at::kLong));
  const at::Tensor row = i.div(run, "floor");
  return (first_index + row * row_width + (i - row * run)).view(mask.sizes());
}

void check_probability(double p) {
  if (p >= 0 && p < 1) return;
  throw Error(ErrorKind::Config, "DROPOUT-RANGE", "dropout probability out of range")
      .got(std::to_string(p))
      .need("0 <= p < 1");
}

// Below 2^32, as p < 1.
uint32_t threshold_of(double p) { return static_cast<uint32_t>(p * 0x1.0p32); }

// The formula of a mask whose elements have the numbers `index`.
at::Tensor select(const at::Tensor& mask, const CounterRng& rng, uint64_t step, const at::Tensor& index,
                  double p) {
  return mask.copy_(words_of(rng, step, index).ge(int64_t{threshold_of(p)})).mul_(1 / (1 - p));
}

// The same by the kernels, where runs of `run` elements have successive numbers: run r begins with
// first_of(r).
template <class FirstOf>
void fill_mask(at::Tensor& mask, const CounterRng& rng, uint64_t step, double p, int64_t run,
               const FirstOf& first_of) {
  dispatch(mask.scalar_type(), [&](auto tag) {
    using T = decltype(tag);
    T* out = write<T>(mask);
    const auto convert = [p](const uint32_t* words, T* to, int64_t count) {
      kernels::select_at_least(words, threshold_of(p), 1 / (1 - p), to, count);
    };
    at::parallel_for(0, mask.numel(), kGrain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end;) {
        const int64_t row = i / run, next = std::min(end, (row + 1) * run);
        fill(rng, step, static_cast<uint64_t>(first_of(row) + (i - row * run)), convert, out + i, next - i);
        i = next;
      }
    });
  });
}

}  // namespace

at::Tensor dropout_mask(at::IntArrayRef sizes, double p, uint64_t seed, uint64_t stream, uint64_t step,
                        int64_t first_index, const at::TensorOptions& options, int64_t row_width) {
  check_probability(p);
  TESSERA_CHECK_ARGUMENT(first_index >= 0, "dropout_mask: first_index");
  TESSERA_CHECK_ARGUMENT(row_width == 0 || (!sizes.empty() && sizes.back() <= row_width),
                         "dropout_mask: row_width");
  if (p == 0) return at::ones(sizes, options);
  at::Tensor mask = at::empty(sizes, options);
  check_operands("dropout_mask", {&mask});
  const CounterRng rng(seed, stream, step);
  if (!uses_kernels(mask)) {
    const int64_t run = row_width > 0 ? sizes.back() : std::max<int64_t>(mask.numel(), 1);
    return select(mask, rng, step, elements(mask, run, first_index, row_width), p);
  }
  const int64_t run = row_width > 0 ? sizes.back() : mask.numel();
  fill_mask(mask, rng, step, p, run, [&](int64_t row) { return first_index + row * row_width; });
  return mask;
}

at::Tensor dropout_mask_of_rows(const std::vector<int64_t>& first_indices, int64_t width, double p,
                                uint64_t seed, uint64_t stream, uint64_t step,
                                const at::TensorOptions& options) {
  check_probability(p);
  TESSERA_CHECK_ARGUMENT(width >= 0, "dropout_mask_of_rows: width");
  const int64_t rows = std::ssize(first_indices);
  at::Tensor mask = at::empty({rows, width}, options);
  if (p == 0) return mask.fill_(1);
  check_operands("dropout_mask_of_rows", {&mask});
  const CounterRng rng(seed, stream, step);
  if (!uses_kernels(mask)) {
    const at::Tensor first = at::tensor(first_indices, on_host(at::kLong)).to(mask.device());
    const at::Tensor column = at::arange(width, mask.options().dtype(at::kLong));
    return select(mask, rng, step, first.unsqueeze(1) + column, p);
  }
  fill_mask(mask, rng, step, p, width, [&](int64_t row) { return first_indices[static_cast<size_t>(row)]; });
  return mask;
}

at::Tensor uniform_noise(at::IntArrayRef sizes, uint64_t seed, uint64_t stream, uint64_t step,
                         int64_t first_index, const at::TensorOptions& options) {
  TESSERA_CHECK_ARGUMENT(first_index >= 0, "uniform_noise: first_index");
  at::Tensor noise = at::empty(sizes, options);
  check_operands("uniform_noise", {&noise});
  const CounterRng rng(seed, stream, step);
  if (!uses_kernels(noise)) {
    const at::Tensor words =
        words_of(rng, step, elements(noise, std::max<int64_t>(noise.numel(), 1), first_index, 0));
    return noise.copy_((words.to(at::kDouble) + 0.5) * 0x1.0p-31 - 1.0);
  }
  dispatch(noise.scalar_type(), [&](auto tag) {
    using T = decltype(tag);
    using C = kernels::ComputeType<T>;
    T* out = write<T>(noise);
    const auto convert = [](const uint32_t* words, T* to, int64_t count) {
      for (int64_t i = 0; i < count; ++i) {
        const double value = (static_cast<double>(words[i]) + 0.5) * 0x1.0p-31 - 1.0;
        if constexpr (std::is_same_v<T, kernels::Bf16>) {
          to[i] = kernels::to_bf16(static_cast<C>(value));
        } else {
          to[i] = static_cast<C>(value);
        }
      }
    };
    at::parallel_for(0, noise.numel(), kGrain, [&](int64_t begin, int64_t end) {
      fill(rng, step, static_cast<uint64_t>(first_index + begin), convert, out + begin, end - begin);
    });
  });
  return noise;
}

}  // namespace tessera::ops
