#include "tessera/core/rng.h"

#include <cmath>

namespace tessera {
namespace {

// A bijection of 64 bits (the finaliser of SplitMix64), to spread small seeds and streams.
uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

double to_unit(uint64_t bits) { return static_cast<double>(bits >> 11) * 0x1.0p-53; }

}  // namespace

std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 4> c, std::array<uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = 0xD2511F53ULL * c[0];
    const uint64_t p1 = 0xCD9E8D57ULL * c[2];
    c = {static_cast<uint32_t>(p1 >> 32) ^ c[1] ^ key[0], static_cast<uint32_t>(p1),
         static_cast<uint32_t>(p0 >> 32) ^ c[3] ^ key[1], static_cast<uint32_t>(p0)};
    key[0] += 0x9E3779B9U;
    key[1] += 0xBB67AE85U;
  }
  return c;
}

CounterRng::CounterRng(uint64_t seed, uint64_t stream, uint64_t step) {
  const uint64_t key = mix(seed ^ mix(stream));
  key_ = {static_cast<uint32_t>(key), static_cast<uint32_t>(key >> 32)};
  high_ = step;
}

std::array<uint32_t, 4> CounterRng::words(uint64_t index) const {
  return philox4x32({static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32),
                     static_cast<uint32_t>(high_), static_cast<uint32_t>(high_ >> 32)},
                    key_);
}

uint64_t CounterRng::bits(uint64_t index) const {
  const auto w = words(index);
  return (static_cast<uint64_t>(w[1]) << 32) | w[0];
}

double CounterRng::uniform(uint64_t index) const { return to_unit(bits(index)); }

double CounterRng::normal(uint64_t index) const {
  const auto w = words(index);
  const double u = 1.0 - to_unit((static_cast<uint64_t>(w[1]) << 32) | w[0]);  // in (0, 1]
  const double v = to_unit((static_cast<uint64_t>(w[3]) << 32) | w[2]);
  return std::sqrt(-2.0 * std::log(u)) * std::cos(2.0 * M_PI * v);
}

uint64_t CounterRng::below(uint64_t index, uint64_t bound) const {
  return static_cast<uint64_t>((static_cast<unsigned __int128>(bits(index)) * bound) >> 64);
}

uint64_t stream_of(const char* name) {
  uint64_t hash = 0xcbf29ce484222325ULL;
  for (; *name != '\0'; ++name) hash = (hash ^ static_cast<unsigned char>(*name)) * 0x100000001b3ULL;
  return hash;
}

}  // namespace tessera
