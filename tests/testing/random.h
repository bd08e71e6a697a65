// Random numbers of a test, which can be repeated.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <random>

namespace tessera::testing {

// A generator that prints its seed; TESSERA_TEST_SEED set to this seed gives the same numbers again.
class Random {
 public:
  Random() : Random(told(new_seed())) {}
  explicit Random(unsigned seed) : engine_(seed) {}
  static unsigned new_seed() {
    const char* text = std::getenv("TESSERA_TEST_SEED");
    return text == nullptr ? std::random_device()() : static_cast<unsigned>(std::atoi(text));
  }
  static unsigned told(unsigned seed) {
    std::cout << "TESSERA_TEST_SEED=" << seed << std::endl;
    return seed;
  }
  // Returns a number in [first, last].
  int64_t in(int64_t first, int64_t last) {
    return std::uniform_int_distribution<int64_t>(first, last)(engine_);
  }
  std::mt19937_64& engine() { return engine_; }

 private:
  std::mt19937_64 engine_;
};

}  // namespace tessera::testing
