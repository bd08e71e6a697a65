// Remembers the tokens of short words.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

namespace tessera::text {

// A token, and the number of bytes of the word that it stands for.
struct WordToken {
  int32_t id;
  uint32_t length;
};

// A direct-mapped cache: a newer word takes the slot of an older one. It holds words of up to 15 bytes and 6
// tokens, nearly all of natural text; longer ones are encoded each time. Its memory is fixed at 1.5 MiB.
class WordCache {
 public:
  static constexpr size_t kMaxBytes = 15;
  static constexpr size_t kMaxTokens = 6;

  // A word as two integers, with the length in the last byte, so that equal keys are equal words.
  struct Key {
    uint64_t low = 0, high = 0;

    explicit Key(std::string_view word) {
      char bytes[16] = {};
      std::memcpy(bytes, word.data(), word.size());
      bytes[15] = static_cast<char>(word.size());
      std::memcpy(&low, bytes, 8);
      std::memcpy(&high, bytes + 8, 8);
    }
  };

  // Appends the tokens of the word to `out` and returns true, if the cache holds them.
  bool find(const Key& key, std::vector<WordToken>& out) const {
    if (!slots_) return false;
    const Slot& slot = slots_[index(key)];
    if (slot.low != key.low || slot.high != key.high) return false;
    for (uint32_t i = 0; i < slot.num_tokens; ++i) out.push_back({slot.ids[i], slot.lengths[i]});
    return true;
  }

  void insert(const Key& key, std::span<const WordToken> tokens) {
    if (tokens.size() > kMaxTokens) return;
    if (!slots_) slots_ = std::make_unique<Slot[]>(kNumSlots);
    Slot& slot = slots_[index(key)];
    slot.low = key.low;
    slot.high = key.high;
    slot.num_tokens = static_cast<uint8_t>(tokens.size());
    for (size_t i = 0; i < tokens.size(); ++i) {
      slot.ids[i] = tokens[i].id;
      slot.lengths[i] = static_cast<uint8_t>(tokens[i].length);
    }
  }

 private:
  static constexpr size_t kNumSlots = size_t{1} << 15;

  struct Slot {
    uint64_t low = 0, high = 0;  // no word has length 0, so an empty slot matches nothing
    int32_t ids[kMaxTokens] = {};
    uint8_t lengths[kMaxTokens] = {};
    uint8_t num_tokens = 0;
  };

  static size_t index(const Key& key) {
    const uint64_t mixed = (key.low ^ std::rotl(key.high, 29)) * 0x9e3779b97f4a7c15ull;
    return mixed >> 49;
  }

  std::unique_ptr<Slot[]> slots_;  // allocated at the first insertion
};

}  // namespace tessera::text
