#include "tests/ops/cuda/machine.h"

namespace tessera::ops::cuda {
namespace {

class CrossEntropyKernel : public KernelTest {};

constexpr int64_t kIgnored = -100;

struct Wanted {
  std::vector<double> losses, gradients;
};

// Computes the formulas of ops::LossTerms in float64. The columns are the tokens from first_token on, of a
// row of `whole` logits.
template <class T>
Wanted by_formula(const std::vector<T>& logits, const std::vector<int64_t>& labels, int64_t width, double e,
                  double c) {
  Wanted want;
  for (size_t row = 0; row < labels.size(); ++row) {
    const auto at = [&](int64_t i) {
      return value_of(logits[row * static_cast<size_t>(width) + static_cast<size_t>(i)]);
    };
    if (labels[row] == kIgnored) {
      want.losses.push_back(0);
      want.gradients.insert(want.gradients.end(), static_cast<size_t>(width), 0.0);
      continue;
    }
    double largest = -INFINITY, sum = 0, total = 0;
    for (int64_t i = 0; i < width; ++i) largest = std::max(largest, at(i));
    for (int64_t i = 0; i < width; ++i) sum += std::exp(at(i) - largest), total += at(i);
    const double log_sum = largest + std::log(sum), mean = total / static_cast<double>(width);
    want.losses.push_back((1 - e) * (log_sum - at(labels[row])) + e * (log_sum - mean) +
                          c * log_sum * log_sum);
    for (int64_t i = 0; i < width; ++i) {
      want.gradients.push_back(std::exp(at(i) - log_sum) * (1 + 2 * c * log_sum) -
                               e / static_cast<double>(width) - (i == labels[row] ? 1 - e : 0));
    }
  }
  return want;
}

template <class T>
struct Made {
  std::vector<double> losses;
  std::vector<T> gradients;
};

LossOptions options_of(double e, double c, int64_t vocabulary, int64_t first_token = 0) {
  return {e, c, vocabulary, first_token, kIgnored};
}

template <class T>
Made<T> run(const std::vector<T>& values, const std::vector<int64_t>& label_values, int64_t width, double e,
            double c, int64_t offset, bool writes) {
  const auto rows = static_cast<int64_t>(label_values.size());
  const Array<T> logits(values, offset);
  const Array<int64_t> labels(label_values);
  const Array<double> losses(rows);
  const LossOptions options = options_of(e, c, width);
  EXPECT_EQ(machine()->kernels().cross_entropy(type_of<T>(), logits.data(), labels.data(), losses.data(),
                                               rows, width, &options, writes ? 1 : 0, nullptr),
            0);
  return {losses.values(), logits.values()};
}

std::vector<int64_t> labels_of(int64_t rows, int64_t width) {
  std::vector<int64_t> labels;
  for (int64_t r = 0; r < rows; ++r) labels.push_back(r % 4 == 2 ? kIgnored : (r * 7919 + 3) % width);
  return labels;
}

TEST_F(CrossEntropyKernel, IsTheFormulaForEveryWidthAndAlignment) {
  for_types([](auto tag) {
    using T = decltype(tag);
    for (const int64_t width : {1, 7, 8, 31, 33, 1000, 1024, 8209}) {
      for (const int64_t offset : {0, 3}) {
        for (const auto& [e, c] :
             {std::pair(0.0, 0.0), std::pair(0.1, 0.0), std::pair(0.0, 1e-2), std::pair(0.2, 1e-3)}) {
          SCOPED_TRACE("width " + std::to_string(width) + ", offset " + std::to_string(offset) +
                       ", smoothing " + std::to_string(e) + ", z " + std::to_string(c));
          const auto logits = random_values<T>(5 * width, 1, 4.0);
          const auto labels = labels_of(5, width);
          const Wanted want = by_formula(logits, labels, width, e, c);
          const Made<T> got = run(logits, labels, width, e, c, offset, true);
          expect_near(got.losses, want.losses, "losses", 1e-5);
          expect_near(got.gradients, want.gradients, "gradients", sizeof(T) == 4 ? 2e-6 : 4e-3);
          const Made<T> alone = run(logits, labels, width, e, c, offset, false);
          EXPECT_EQ(alone.losses, got.losses);
          expect_same_bits(alone.gradients, logits, "logits without gradients");
        }
      }
    }
  });
}

TEST_F(CrossEntropyKernel, GivesTheSameBitsInAnyOrderAndForSmallGrids) {
  const auto logits = random_values<Bf16Bits>(7 * 3001, 1, 4.0);
  const auto labels = labels_of(7, 3001);
  const Made<Bf16Bits> first = run(logits, labels, 3001, 0.1, 1e-3, 0, true);
  const Made<Bf16Bits> second = run(logits, labels, 3001, 0.1, 1e-3, 0, true);
  EXPECT_EQ(second.losses, first.losses);
  expect_same_bits(second.gradients, first.gradients, "gradients");
  with_small_grids([&] {
    const Made<Bf16Bits> small = run(logits, labels, 3001, 0.1, 1e-3, 0, true);
    EXPECT_EQ(small.losses, first.losses);
    expect_same_bits(small.gradients, first.gradients, "gradients in small grids");
  });
}

TEST_F(CrossEntropyKernel, MaskedHugeAndPoisonedLogits) {
  constexpr int64_t kWidth = 2000;
  std::vector<float> logits(4 * kWidth, -INFINITY);
  logits[1500] = 2.0f;                                     // row 0: one token is possible
  std::fill_n(logits.begin() + kWidth, kWidth, 3e38f);     // row 1: sums that would overflow
  std::fill_n(logits.begin() + 2 * kWidth, kWidth, 1.0f);  // row 2: poisoned
  logits[2 * kWidth + 7] = NAN;
  logits[3 * kWidth + 1] = 1.0f, logits[3 * kWidth + 5] = 1.0f;  // row 3
  const Made<float> got = run(logits, {1500, 3, 9, 5}, kWidth, 0.0, 0.0, 0, true);
  EXPECT_EQ(got.losses[0], 0.0);
  EXPECT_EQ(got.gradients[0], 0.0f);
  EXPECT_EQ(got.gradients[1500], 0.0f);
  EXPECT_TRUE(std::isfinite(got.losses[1]));
  EXPECT_TRUE(std::isnan(got.losses[2]));
  EXPECT_TRUE(std::isnan(got.gradients[2 * kWidth]));
  EXPECT_NEAR(got.losses[3], std::log(2.0), 1e-6);
  EXPECT_NEAR(got.gradients[3 * kWidth + 5], -0.5, 1e-6);
}

// Two parts of a vocabulary, with the reductions that a caller makes between the two calls, give the losses
// and gradients of the whole.
TEST_F(CrossEntropyKernel, PartsOfTheVocabularyGiveTheWhole) {
  for_types([](auto tag) {
    using T = decltype(tag);
    constexpr int64_t kRows = 6, kWhole = 1203, kCut = 700;
    const auto logits = random_values<T>(kRows * kWhole, 1, 4.0);
    const auto labels = labels_of(kRows, kWhole);
    const double e = 0.1, c = 1e-3;
    const Wanted want = by_formula(logits, labels, kWhole, e, c);
    const Array<int64_t> label_array(labels);
    std::vector<std::vector<float>> sums;
    const auto part_of = [&](int64_t begin, int64_t end) {
      std::vector<T> part;
      for (int64_t r = 0; r < kRows; ++r)
        part.insert(part.end(), logits.begin() + r * kWhole + begin, logits.begin() + r * kWhole + end);
      return part;
    };
    const std::pair<int64_t, int64_t> cuts[] = {{0, kCut}, {kCut, kWhole}, {kWhole, kWhole}};
    for (const auto& [begin, end] : cuts) {
      const Array<T> part(part_of(begin, end));
      const Array<float> out(3 * kRows);
      const LossOptions options = options_of(e, c, kWhole, begin);
      ASSERT_EQ(kernels().cross_entropy_sums(type_of<T>(), part.data(), label_array.data(), out.data(), kRows,
                                             end - begin, &options, nullptr),
                0);
      sums.push_back(out.values());
    }
    for (size_t r = 0; r < kRows; ++r) {
      if (labels[r] != kIgnored) {
        EXPECT_EQ(sums[2][r], -INFINITY) << "of no logits";
      }
    }
    std::vector<float> all(3 * kRows);
    for (size_t r = 0; r < kRows; ++r) {
      double sum = 0;
      for (const auto& part : sums) {
        sum += std::exp(static_cast<double>(part[r]));
        all[kRows + r] += part[kRows + r];
        all[2 * kRows + r] += part[2 * kRows + r];
      }
      all[r] = static_cast<float>(std::log(sum));
    }
    const Array<float> combined(all);
    for (const auto& [begin, end] : cuts) {
      const Array<T> part(part_of(begin, end));
      const Array<double> losses(kRows);
      const LossOptions options = options_of(e, c, kWhole, begin);
      ASSERT_EQ(kernels().cross_entropy_finish(type_of<T>(), part.data(), label_array.data(), combined.data(),
                                               losses.data(), kRows, end - begin, &options, 1, nullptr),
                0);
      expect_near(losses.values(), want.losses, "losses", 1e-5);
      std::vector<double> gradients;
      for (int64_t r = 0; r < kRows; ++r)
        gradients.insert(gradients.end(), want.gradients.begin() + r * kWhole + begin,
                         want.gradients.begin() + r * kWhole + end);
      expect_near(part.values(), gradients, "gradients", sizeof(T) == 4 ? 2e-6 : 4e-3);
    }
  });
}

}  // namespace
}  // namespace tessera::ops::cuda
