#include "tessera/core/sha256.h"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstring>

namespace tessera {
namespace {

constexpr size_t kBlock = 64;

constexpr uint32_t kRound[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

uint32_t word_at(const char* bytes) {
  uint32_t word = 0;
  std::memcpy(&word, bytes, sizeof word);
  return __builtin_bswap32(word);
}

}  // namespace

void Sha256::mix(const char* block) {
  uint32_t words[64];
  for (size_t i = 0; i < 16; ++i) words[i] = word_at(block + 4 * i);
  for (size_t i = 16; i < 64; ++i) {
    const uint32_t early = words[i - 15], late = words[i - 2];
    words[i] = words[i - 16] + (std::rotr(early, 7) ^ std::rotr(early, 18) ^ (early >> 3)) + words[i - 7] +
               (std::rotr(late, 17) ^ std::rotr(late, 19) ^ (late >> 10));
  }
  auto [a, b, c, d, e, f, g, h] = state_;
  for (size_t i = 0; i < 64; ++i) {
    const uint32_t one = h + (std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25)) + ((e & f) ^ (~e & g)) +
                         kRound[i] + words[i];
    const uint32_t two =
        (std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
    h = g, g = f, f = e, e = d + one, d = c, c = b, b = a, a = one + two;
  }
  const uint32_t mixed[] = {a, b, c, d, e, f, g, h};
  for (size_t i = 0; i < state_.size(); ++i) state_[i] += mixed[i];
}

void Sha256::add(std::string_view bytes) {
  const size_t held = num_bytes_ % kBlock;
  num_bytes_ += bytes.size();
  if (held > 0) {
    const size_t taken = std::min(kBlock - held, bytes.size());
    std::copy_n(bytes.data(), taken, rest_.data() + held);
    bytes.remove_prefix(taken);
    if (held + taken < kBlock) return;
    mix(rest_.data());
  }
  for (; bytes.size() >= kBlock; bytes.remove_prefix(kBlock)) mix(bytes.data());
  std::copy_n(bytes.data(), bytes.size(), rest_.data());
}

std::string Sha256::hex() {
  const uint64_t num_bits = __builtin_bswap64(num_bytes_ * 8);
  std::string end = "\x80";
  end.append((kBlock + 56 - (num_bytes_ + 1) % kBlock) % kBlock, '\0');
  end.append(reinterpret_cast<const char*>(&num_bits), sizeof num_bits);
  add(end);
  std::string text;
  for (const uint32_t word : state_) {
    char digits[9];
    std::snprintf(digits, sizeof digits, "%08x", word);
    text += digits;
  }
  return text;
}

}  // namespace tessera
