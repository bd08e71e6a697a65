#include "tessera/ops/counter_dropout.h"

#include <algorithm>
#include <array>
#include <string>
#include <type_traits>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "tessera/core/check_argument.h"
#include "tessera/ops/counter_words.h"
#include "tessera/ops/host.h"
#include "tessera/ops/plain.h"
#include "tessera/ops/support.h"

namespace tessera::ops {
namespace {

constexpr int64_t kBlocks = 256;  // counters whose words are drawn at a time
constexpr int64_t kGrain = 16384;

// Fills out[0, count) for the elements from `index` on: `convert(words, out, count)` makes the value of
// element i of word i % 4 of counter i / 4.
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

void check_probability(double p) {
  if (p >= 0 && p < 1) return;
  throw Error(ErrorKind::Config, "DROPOUT-RANGE", "dropout probability out of range")
      .got(std::to_string(p))
      .need("0 <= p < 1");
}

// Returns a function that makes the values of a draw of random words.
auto converter(const Draw& what) {
  return [what](const uint32_t* words, auto* to, int64_t count) {
    using T = std::remove_pointer_t<decltype(to)>;
    if (what.kind == Draw::Kind::Dropout) {
      kernels::select_at_least(words, what.threshold(), what.kept(), to, count);
      return;
    }
    for (int64_t i = 0; i < count; ++i) {
      const double value = (static_cast<double>(words[i]) + 0.5) * 0x1.0p-31 - 1.0;
      if constexpr (std::is_same_v<T, kernels::Bf16>) {
        to[i] = kernels::to_bf16(static_cast<float>(value));
      } else {
        to[i] = static_cast<T>(value);
      }
    }
  };
}

at::Tensor drawn(const char* op, at::IntArrayRef sizes, const at::TensorOptions& options, const Draw& what,
                 const ElementNumbers& numbers) {
  at::Tensor out = at::empty(sizes, options);
  check_operands(op, {&out});
  if (out.numel() > 0) leaves(out).draw(out, what, numbers);
  return out;
}

}  // namespace

void host::draw(const at::Tensor& mask, const Draw& what, const ElementNumbers& numbers) {
  dispatch(mask.scalar_type(), [&](auto tag) {
    auto* out = write<decltype(tag)>(mask);
    at::parallel_for(0, mask.numel(), kGrain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end;) {
        const int64_t row = i / numbers.width, next = std::min(end, (row + 1) * numbers.width);
        const auto number = static_cast<uint64_t>(numbers.first_of(row) + (i - row * numbers.width));
        fill(what.rng, what.step, number, converter(what), out + i, next - i);
        i = next;
      }
    });
  });
}

void plain::draw(const at::Tensor& mask, const Draw& what, const ElementNumbers& numbers) {
  const at::Tensor number = numbers_of_elements(numbers, 0, mask.numel(), mask.device());
  const at::Tensor words = counter_words(what.rng, what.step, number.view(mask.sizes()));
  if (what.kind == Draw::Kind::Dropout) {
    mask.copy_(words.ge(int64_t{what.threshold()})).mul_(what.kept());
  } else {
    mask.copy_((words.to(at::kDouble) + 0.5) * 0x1.0p-31 - 1.0);
  }
}

at::Tensor dropout_mask(at::IntArrayRef sizes, double p, uint64_t seed, uint64_t stream, uint64_t step,
                        int64_t first_index, const at::TensorOptions& options, int64_t row_width) {
  check_probability(p);
  TESSERA_CHECK_ARGUMENT(first_index >= 0, "dropout_mask: first_index");
  TESSERA_CHECK_ARGUMENT(row_width == 0 || (!sizes.empty() && sizes.back() <= row_width),
                         "dropout_mask: row_width");
  if (p == 0) return at::ones(sizes, options);
  const int64_t width = row_width > 0 ? sizes.back() : c10::multiply_integers(sizes);
  return drawn("dropout_mask", sizes, options, {Draw::Kind::Dropout, {seed, stream, step}, step, p},
               {width, first_index, row_width});
}

at::Tensor dropout_mask_of_rows(const std::vector<int64_t>& first_indices, int64_t width, double p,
                                uint64_t seed, uint64_t stream, uint64_t step,
                                const at::TensorOptions& options) {
  check_probability(p);
  TESSERA_CHECK_ARGUMENT(width >= 0, "dropout_mask_of_rows: width");
  const std::array<int64_t, 2> sizes = {std::ssize(first_indices), width};
  if (p == 0) return at::ones(sizes, options);
  return drawn("dropout_mask_of_rows", sizes, options, {Draw::Kind::Dropout, {seed, stream, step}, step, p},
               {.width = width, .of_rows = &first_indices});
}

at::Tensor uniform_noise(at::IntArrayRef sizes, uint64_t seed, uint64_t stream, uint64_t step,
                         int64_t first_index, const at::TensorOptions& options) {
  TESSERA_CHECK_ARGUMENT(first_index >= 0, "uniform_noise: first_index");
  return drawn("uniform_noise", sizes, options, {Draw::Kind::Noise, {seed, stream, step}, step},
               {c10::multiply_integers(sizes), first_index});
}

}  // namespace tessera::ops
