#include "tessera/scoring/python_random.h"

#include <bit>
#include <cmath>
#include <numeric>
#include <set>

#include "tessera/core/error.h"

namespace tessera::scoring {

void PythonRandom::seed_by(uint32_t seed) {
  state_[0] = seed;
  for (uint32_t i = 1; i < kWords; ++i) state_[i] = 1812433253U * (state_[i - 1] ^ (state_[i - 1] >> 30)) + i;
  at_ = kWords;
}

PythonRandom::PythonRandom(uint64_t seed) {
  // init_by_array() with the 32-bit words of the seed as the key.
  std::vector<uint32_t> key = {static_cast<uint32_t>(seed)};
  if (seed >> 32 != 0) key.push_back(static_cast<uint32_t>(seed >> 32));
  seed_by(19650218U);
  size_t i = 1, j = 0;
  const auto step = [&] {
    if (++i >= kWords) {
      state_[0] = state_[kWords - 1];
      i = 1;
    }
  };
  const auto mixed = [&] { return state_[i - 1] ^ (state_[i - 1] >> 30); };
  for (size_t k = std::max(kWords, key.size()); k > 0; --k) {
    state_[i] = (state_[i] ^ (mixed() * 1664525U)) + key[j] + static_cast<uint32_t>(j);
    j = (j + 1) % key.size();
    step();
  }
  for (size_t k = kWords - 1; k > 0; --k) {
    state_[i] = (state_[i] ^ (mixed() * 1566083941U)) - static_cast<uint32_t>(i);
    step();
  }
  state_[0] = 0x80000000U;
}

uint32_t PythonRandom::next() {
  if (at_ == kWords) {
    for (size_t k = 0; k < kWords; ++k) {
      const uint32_t y = (state_[k] & 0x80000000U) | (state_[(k + 1) % kWords] & 0x7fffffffU);
      state_[k] = state_[(k + 397) % kWords] ^ (y >> 1) ^ ((y & 1U) != 0 ? 0x9908b0dfU : 0U);
    }
    at_ = 0;
  }
  uint32_t y = state_[at_++];
  y ^= y >> 11;
  y ^= (y << 7) & 0x9d2c5680U;
  y ^= (y << 15) & 0xefc60000U;
  return y ^ (y >> 18);
}

double PythonRandom::real() {
  const uint32_t high = next() >> 5, low = next() >> 6;
  return (high * 67108864.0 + low) * (1.0 / 9007199254740992.0);
}

int64_t PythonRandom::below(int64_t n) {
  TESSERA_ASSERT(n > 0, "a number is drawn below at least 1");
  const int bits = std::bit_width(static_cast<uint64_t>(n));
  const auto draw = [&]() -> uint64_t {
    if (bits <= 32) return next() >> (32 - bits);
    const uint64_t low = next();
    return low | uint64_t{next() >> (64 - bits)} << 32;
  };
  uint64_t value = draw();
  while (value >= static_cast<uint64_t>(n)) value = draw();
  return static_cast<int64_t>(value);
}

std::vector<int64_t> PythonRandom::sample(int64_t size, int64_t k) {
  TESSERA_ASSERT(0 <= k && k <= size, "a sample is no larger than its population");
  std::vector<int64_t> taken;
  double set_size = 21;
  if (k > 5) set_size += std::pow(4.0, std::ceil(std::log(3.0 * static_cast<double>(k)) / std::log(4.0)));
  if (static_cast<double>(size) <= set_size) {
    std::vector<int64_t> pool(static_cast<size_t>(size));
    std::iota(pool.begin(), pool.end(), int64_t{0});
    for (int64_t i = 0; i < k; ++i) {
      const auto j = static_cast<size_t>(below(size - i));
      taken.push_back(pool[j]);
      pool[j] = pool[static_cast<size_t>(size - i - 1)];
    }
    return taken;
  }
  std::set<int64_t> selected;
  while (std::ssize(taken) < k) {
    const int64_t j = below(size);
    if (selected.insert(j).second) taken.push_back(j);
  }
  return taken;
}

}  // namespace tessera::scoring
