#include "tessera/ops/counter_dropout.h"

#include <algorithm>
#include <array>
#include <string>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "tessera/core/check_argument.h"
#include "tessera/core/rng.h"
#include "tessera/ops/support.h"

namespace tessera::ops {
namespace {

constexpr int64_t kBlocks = 256;  // counters drawn at a time
constexpr int64_t kGrain = 16384;

// Fills out[0, count) for the elements from `index` on: element i takes word i % 4 of counter i / 4.
template <class T>
void fill(const CounterRng& rng, uint64_t step, uint64_t index, uint32_t threshold, double keep, T* out,
          int64_t count) {
  std::array<uint32_t, 4 * kBlocks> words;
  while (count > 0) {
    const int64_t skip = static_cast<int64_t>(index % 4);
    const int64_t taken = std::min<int64_t>(count, static_cast<int64_t>(words.size()) - skip);
    kernels::philox_blocks(index / 4, step, rng.key(), words.data(), (skip + taken + 3) / 4);
    kernels::select_at_least(words.data() + skip, threshold, keep, out, taken);
    index += static_cast<uint64_t>(taken);
    out += taken;
    count -= taken;
  }
}

}  // namespace

at::Tensor dropout_mask(at::IntArrayRef sizes, double p, uint64_t seed, uint64_t stream, uint64_t step,
                        int64_t first_index, at::ScalarType type, int64_t row_width) {
  if (!(p >= 0 && p < 1)) {
    throw Error(ErrorKind::Config, "DROPOUT-RANGE", "dropout probability out of range")
        .got(std::to_string(p))
        .need("0 <= p < 1");
  }
  TESSERA_CHECK_ARGUMENT(first_index >= 0, "dropout_mask: first_index");
  TESSERA_CHECK_ARGUMENT(row_width == 0 || (!sizes.empty() && sizes.back() <= row_width),
                         "dropout_mask: row_width");
  if (p == 0) return at::ones(sizes, type);
  at::Tensor mask = at::empty(sizes, type);
  check_operand(mask, "dropout_mask");
  const CounterRng rng(seed, stream, step);
  // Below 2^32, as p < 1.
  const auto threshold = static_cast<uint32_t>(p * 0x1.0p32);
  dispatch(type, [&](auto tag) {
    using T = decltype(tag);
    T* out = write<T>(mask);
    const int64_t run = row_width > 0 ? sizes.back() : mask.numel();  // elements with successive indices
    at::parallel_for(0, mask.numel(), kGrain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end;) {
        const int64_t row = i / run, next = std::min(end, (row + 1) * run);
        const auto index = static_cast<uint64_t>(first_index + row * row_width + (i - row * run));
        fill(rng, step, index, threshold, 1 / (1 - p), out + i, next - i);
        i = next;
      }
    });
  });
  return mask;
}

}  // namespace tessera::ops
