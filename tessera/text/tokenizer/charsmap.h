// SentencePiece's compiled map from characters to their normal form ("precompiled_charsmap").
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tessera::text {

// The map's bytes are the size of a trie in bytes (32 bits, little-endian), the units of that trie (Darts),
// and the normal forms in UTF-8, each closed by a zero byte [google/sentencepiece normalizer.cc]. Immutable.
class Charsmap {
 public:
  struct Match {
    size_t length = 0;  // of the text that is replaced, in bytes
    std::string_view replacement;
  };

  // An empty map replaces nothing. Throws Error(Model) for a malformed one. `place` names it in messages.
  Charsmap(std::string bytes, std::string place);

  // Returns the first rule (of the shortest prefix) or the longest one that `text` begins with. Throws
  // Error(Model) if the trie leads out of the map.
  std::optional<Match> first(std::string_view text) const { return find(text, true); }
  std::optional<Match> longest(std::string_view text) const { return find(text, false); }
  // Returns whether no rule applies to this byte of ASCII if ASCII follows.
  bool keeps(unsigned char ascii) const { return keeps_[ascii]; }
  // Returns whether no rule applies anywhere in the text; may return false though none does.
  bool keeps_all(std::string_view text) const;

 private:
  std::optional<Match> find(std::string_view text, bool shortest) const;
  // Returns the node behind `byte`, or nothing.
  std::optional<size_t> step(size_t node, unsigned char byte) const;
  uint32_t unit(size_t index) const;
  std::string_view replacement(size_t node) const;
  [[noreturn]] void malformed(const std::string& what) const;

  std::string bytes_;
  std::string place_;
  size_t num_units_ = 0;
  std::string_view texts_;  // the normal forms; a part of bytes_
  std::array<bool, 128> keeps_{};
};

}  // namespace tessera::text
