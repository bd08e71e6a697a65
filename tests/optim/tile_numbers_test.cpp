#include "tessera/optim/tile_numbers.h"

#include <algorithm>
#include <random>
#include <string>

#include <gtest/gtest.h>

#include "tests/testing/random.h"

namespace tessera::optim {
namespace {

using parallel::Box;

std::vector<int64_t> numbers_of(const std::vector<NumberedPart>& parts) {
  std::vector<int64_t> numbers;
  for (const NumberedPart& part : parts) {
    for (int64_t i = 0; i < part.size; ++i) {
      const int64_t row = i / part.numbers.width;
      numbers.push_back(part.numbers.first_of(row) + i - row * part.numbers.width);
    }
  }
  return numbers;
}

// Computes the numbers element by element.
std::vector<int64_t> by_hand(const std::vector<int64_t>& shape, const Box& box) {
  std::vector<int64_t> numbers = {0};
  for (size_t d = 0; d < shape.size(); ++d) {
    std::vector<int64_t> next;
    for (const int64_t number : numbers) {
      for (int64_t i = 0; i < box.size[d]; ++i) next.push_back(number * shape[d] + box.offset[d] + i);
    }
    numbers = std::move(next);
  }
  return numbers;
}

TEST(TileNumbersTest, AreThePlacesInTheWhole) {
  testing::Random drawn;
  std::mt19937_64& random = drawn.engine();
  const auto below = [&](int64_t bound) {
    return static_cast<int64_t>(random() % static_cast<uint64_t>(bound));
  };
  for (int round = 0; round < 300; ++round) {
    std::vector<int64_t> shape;
    Box box;
    for (int64_t d = below(4); d >= 0; --d) {
      shape.push_back(1 + below(6));
      box.offset.push_back(below(shape.back()));
      box.size.push_back(below(shape.back() - box.offset.back() + 1));
    }
    const std::vector<int64_t> want = by_hand(shape, box);
    const TileNumbers numbers(shape, box);
    const int64_t elements = std::ssize(want);
    EXPECT_EQ(numbers_of(numbers.parts(0, elements)), want);
    // Any piece of the tile comes in parts that follow each other.
    const int64_t begin = below(elements + 1), size = below(elements - begin + 1);
    const auto parts = numbers.parts(begin, size);
    int64_t at = begin;
    for (const NumberedPart& part : parts) {
      EXPECT_EQ(part.begin, at);
      EXPECT_GT(part.size, 0);
      at += part.size;
    }
    EXPECT_EQ(at, begin + size);
    EXPECT_EQ(numbers_of(parts), std::vector<int64_t>(want.begin() + begin, want.begin() + begin + size));
  }
}

TEST(TileNumbersTest, TilesOfMatricesAreOnePart) {
  const std::vector<int64_t> shape = {12, 10};
  for (const Box& box :
       {Box{{0, 0}, {12, 10}}, Box{{4, 0}, {5, 10}}, Box{{0, 3}, {12, 4}}, Box{{3, 2}, {6, 8}}}) {
    const auto parts = TileNumbers(shape, box).parts(0, box.numel());
    ASSERT_EQ(parts.size(), 1U);
    EXPECT_EQ(parts[0].size, box.numel());
  }
  // A piece that begins and ends within rows has three parts: the rest of a row, whole rows, and the
  // beginning of one.
  EXPECT_EQ(TileNumbers(shape, Box{{0, 3}, {12, 4}}).parts(3, 30).size(), 3U);
  EXPECT_TRUE(TileNumbers(shape, Box{{4, 0}, {0, 10}}).parts(0, 0).empty());
  EXPECT_EQ(TileNumbers({}, Box{}).parts(0, 1).size(), 1U);
}

}  // namespace
}  // namespace tessera::optim
