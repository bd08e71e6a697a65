// The automaton of a grammar: for each rule, positions that are joined by bytes and by calls of rules.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tessera/text/constraint/grammar.h"

namespace tessera::text {

// Every position leads to the end of its rule, so that no text is a dead end.
class Automaton {
 public:
  enum class Kind : uint8_t { Byte, Call, Skip };  // Skip takes nothing
  struct Edge {
    Kind kind;
    uint8_t first = 0, last = 0;  // of Byte
    int32_t to = 0;
    int32_t start = 0;  // of Call: the first position of the rule, which goes on at `to`
  };

  // Throws Error(Config): "CONSTRAINT-EMPTY" if no text matches, "CONSTRAINT-RECURSION" if a rule begins with
  // itself, and "CONSTRAINT-RULE" if a rule is not defined.
  explicit Automaton(const Grammar& grammar);

  int32_t start() const { return start_; }
  std::span<const Edge> edges(int32_t position) const {
    const auto at = static_cast<size_t>(position);
    return {edges_.data() + first_edge_[at], first_edge_[at + 1] - first_edge_[at]};
  }
  // Tells whether a rule may end at the position, and whether it has to.
  bool is_end(int32_t position) const { return is_end_[static_cast<size_t>(position)]; }
  bool is_last(int32_t position) const { return is_end(position) && edges(position).empty(); }
  // Bytes of one class lead to the same positions everywhere. Returns the class of a byte, and a byte of each
  // class.
  int32_t byte_class(uint8_t byte) const { return classes_[byte]; }
  std::span<const uint8_t> class_bytes() const { return class_bytes_; }

 private:
  int32_t start_ = 0;
  std::vector<Edge> edges_;
  std::vector<size_t> first_edge_;  // of each position, and the number of all
  std::vector<bool> is_end_;
  std::array<int32_t, 256> classes_ = {};
  std::vector<uint8_t> class_bytes_;
};

}  // namespace tessera::text
