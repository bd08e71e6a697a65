#include "tessera/ops/counter_words.h"

#include <utility>

#include <ATen/ATen.h>

#include "tessera/ops/support.h"

namespace tessera::ops {
namespace {

constexpr int64_t kLow = 0xFFFFFFFF;

// Returns the low and the high half of a product of 32-bit numbers. The product may fill all 64 bits; the
// masks take away what int64's sign shifts in.
std::pair<at::Tensor, at::Tensor> halves_of_product(const at::Tensor& a, int64_t factor) {
  const at::Tensor product = a * factor;
  return {product.bitwise_and(kLow), product.bitwise_right_shift(32).bitwise_and(kLow)};
}

}  // namespace

at::Tensor numbers_of_elements(const ElementNumbers& numbers, int64_t begin, int64_t end, at::Device device) {
  const at::Tensor i = at::arange(begin, end, at::TensorOptions(device).dtype(at::kLong));
  if (begin == end) return i;
  const at::Tensor row = i.div(numbers.width, "floor"), column = i - row * numbers.width;
  if (numbers.of_rows == nullptr) return numbers.first + row * numbers.row_stride + column;
  return copied_to<int64_t>(device, *numbers.of_rows).index_select(0, row) + column;
}

at::Tensor counter_words(const CounterRng& rng, uint64_t step, const at::Tensor& index) {
  const at::Tensor counter = index.bitwise_right_shift(2);
  // Philox4x32-10 (core/rng.h) on int64 tensors, of whose elements the lower 32 bits count.
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

}  // namespace tessera::ops
