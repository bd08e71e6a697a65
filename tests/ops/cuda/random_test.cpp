#include "tests/ops/cuda/machine.h"

namespace tessera::ops::cuda {
namespace {

class RandomKernel : public KernelTest {};

constexpr uint64_t kStep = 0x1234567890abcdefULL;

struct Elements {
  int64_t rows, width;
  uint64_t first, stride;
  std::vector<int64_t> numbers;  // the numbers of the rows, unless empty

  uint64_t number(int64_t row, int64_t column) const {
    const uint64_t begin = numbers.empty() ? first + static_cast<uint64_t>(row) * stride
                                           : static_cast<uint64_t>(numbers[static_cast<size_t>(row)]);
    return begin + static_cast<uint64_t>(column);
  }
};

// Returns make(word) of every element, with the words of the host's generator.
template <class T, class Make>
std::vector<T> by_cpu(const Elements& elements, const CounterRng& rng, const Make& make) {
  std::vector<T> want;
  for (int64_t r = 0; r < elements.rows; ++r) {
    for (int64_t c = 0; c < elements.width; ++c) {
      const uint64_t number = elements.number(r, c);
      want.push_back(make(rng.words(number / 4)[number % 4]));
    }
  }
  return want;
}

template <class T>
void check(const Elements& e, int64_t offset) {
  constexpr double kP = 0.3;
  const CounterRng rng(3, 4, kStep);
  const RandomKey key = {{rng.key()[0], rng.key()[1]}, kStep};
  const Array<int64_t> numbers(e.numbers);
  const RandomElements elements = {e.rows, e.width, e.first, e.stride,
                                   e.numbers.empty() ? nullptr : numbers.data()};
  const Array<T> out(e.rows * e.width, offset);
  ASSERT_EQ(machine()->kernels().dropout_mask(type_of<T>(), kP, &key, &elements, out.data(), nullptr), 0);
  const auto threshold = static_cast<uint32_t>(kP * 0x1p32);
  expect_same_bits(out.values(),
                   by_cpu<T>(e, rng,
                             [&](uint32_t word) {
                               T x;
                               set_value(word < threshold ? 0.0 : 1 / (1 - kP), x);
                               return x;
                             }),
                   "mask");
  ASSERT_EQ(machine()->kernels().uniform_noise(type_of<T>(), &key, &elements, out.data(), nullptr), 0);
  expect_same_bits(out.values(),
                   by_cpu<T>(e, rng,
                             [&](uint32_t word) {
                               T x;
                               set_value((static_cast<double>(word) + 0.5) * 0x1p-31 - 1.0, x);
                               return x;
                             }),
                   "noise");
}

template <class T>
void check_all() {
  for (const int64_t offset : {0, 1}) {
    for (const int64_t n : edge_lengths()) {
      for (const uint64_t first : {uint64_t{0}, uint64_t{3}, uint64_t{0x3fffffffe}}) {
        SCOPED_TRACE(std::to_string(n) + " elements, first " + std::to_string(first));
        check<T>({1, n, first, 0, {}}, offset);
      }
    }
    check<T>({7, 13, 5, 29, {}}, offset);
    check<T>({5, 32, 64, 128, {}}, offset);
    check<T>({4, 19, 0, 0, {1000, 3, 77777777777, 40}}, offset);
  }
}

TEST_F(RandomKernel, MasksAndNoiseAreTheCpusBits) {
  check_all<float>();
  check_all<Bf16Bits>();
  check_all<double>();
}

TEST_F(RandomKernel, NothingIsDroppedWithoutAProbability) {
  const RandomKey key = {{1, 2}, 3};
  const RandomElements elements = {1, 100, 0, 0, nullptr};
  const Array<float> out(100);
  ASSERT_EQ(kernels().dropout_mask(Type::F32, 0.0, &key, &elements, out.data(), nullptr), 0);
  EXPECT_EQ(out.values(), std::vector<float>(100, 1.0f));
}

}  // namespace
}  // namespace tessera::ops::cuda
