// The stacks of an automaton that has taken a text: where it may stand, and in which calls.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "tessera/text/constraint/automaton.h"

namespace tessera::text {

// A stack is a node: a position on top, and the node that goes on when the position's rule has ended. Equal
// stacks are one node, and stacks share what lies below, so that a state is a few numbers. The automaton must
// outlive this object.
class Stacks {
 public:
  using Node = int32_t;
  static constexpr Node kBottom = 0;  // stands for what follows the first rule

  // The stacks that a text may have led to.
  struct State {
    std::vector<Node> heads;  // in order; each has a position that takes a byte
    bool has_ended = false;   // the first rule may end here

    bool operator==(const State&) const = default;
    bool is_dead() const { return heads.empty() && !has_ended; }
  };

  explicit Stacks(const Automaton& automaton);

  Node node(int32_t position, Node below);
  int32_t position(Node node) const { return entries_[static_cast<size_t>(node)].position; }
  Node below(Node node) const { return entries_[static_cast<size_t>(node)].below; }

  // Returns the state of a node before it takes a byte. Throws Error(Config, "CONSTRAINT-AMBIGUOUS") if there
  // are too many ways on from it.
  State enter(Node node);
  // Returns the state behind a byte. Throws what enter() throws.
  State take(const State& state, uint8_t byte);

  int64_t size() const { return std::ssize(entries_); }
  // Forgets all nodes but those of a state, whose numbers change.
  void keep(State& state);
  void clear() {
    nodes_.clear();
    entries_.resize(1);
  }

 private:
  struct Entry {
    int32_t position = 0;
    Node below = kBottom;
    uint64_t visit = 0;  // the last walk that came here
  };

  void start_walk() {
    ++visit_;
    num_reached_ = 0;
  }
  // Adds what is reached from the node without a byte, in the walk `visit_`.
  void close(Node node, State& state);

  const Automaton* automaton_;
  std::vector<Entry> entries_;
  std::unordered_map<uint64_t, Node> nodes_;  // by position and node below
  std::vector<Node> open_;
  uint64_t visit_ = 0;
  int64_t num_reached_ = 0;  // nodes of this walk
};

}  // namespace tessera::text
