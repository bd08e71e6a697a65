// The generator of Python's module `random`, with its ways to draw: what the harness draws by a seed is drawn
// here alike.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace tessera::scoring {

// random.Random(seed) of CPython 3 (Modules/_randommodule.c and Lib/random.py): the Mersenne Twister MT19937
// of Matsumoto and Nishimura.
class PythonRandom {
 public:
  explicit PythonRandom(uint64_t seed);

  // Returns random(): a number in [0, 1) of 53 bits.
  double real();
  // Returns _randbelow(n): a whole number in [0, n), for n > 0.
  int64_t below(int64_t n);
  // Returns the positions that sample(population, k) takes from a population of this size, in its order;
  // 0 <= k <= size.
  std::vector<int64_t> sample(int64_t size, int64_t k);

 private:
  static constexpr size_t kWords = 624;
  void seed_by(uint32_t seed);
  uint32_t next();

  std::array<uint32_t, kWords> state_{};
  size_t at_ = kWords;
};

}  // namespace tessera::scoring
