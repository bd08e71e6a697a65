// A trie of pieces over bytes, for the models that look for the pieces that a text goes on with.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace tessera::text {

// A double array (Aoe, "An efficient digital search algorithm by using a double-array structure", 1989): the
// child of a node by a byte lies `byte` units behind the node's base, and knows its parent, so that a step is
// one comparison.
class PieceTrie {
 public:
  static constexpr int32_t kRoot = 0, kNone = -1;

  // Builds the trie of pieces with values of at least 0. An empty piece is left out, and the later of two
  // equal ones counts. Throws Error(Model) for pieces of more than 64 MiB together.
  explicit PieceTrie(std::vector<std::pair<std::string_view, int32_t>> pieces);

  // Returns the child of a node, or kNone.
  int32_t step(int32_t node, unsigned char byte) const {
    const int32_t child = units_[static_cast<size_t>(node)].base + byte;
    return units_[static_cast<size_t>(child)].parent == node ? child : kNone;
  }
  // Returns the value of the piece that ends at the node, or kNone.
  int32_t value(int32_t node) const { return units_[static_cast<size_t>(node)].value; }
  // Returns the node behind `prefix`, or kNone.
  int32_t walk(std::string_view prefix) const;

 private:
  class Builder;
  struct Unit {
    int32_t base = 0;
    int32_t parent = kNone;
    int32_t value = kNone;
  };

  std::vector<Unit> units_;  // 256 free units follow the last one that is used
};

}  // namespace tessera::text
