#include "tessera/text/constraint/stacks.h"

#include <algorithm>
#include <utility>

namespace tessera::text {
namespace {

constexpr size_t kMostHeads = 4096;
constexpr int64_t kMostReached = 1 << 17;  // nodes of one walk

Error ambiguous(int64_t most) {
  return constraint_error("AMBIGUOUS", "the constraint can read one text in too many ways")
      .need("at most " + std::to_string(most));
}

}  // namespace

Stacks::Stacks(const Automaton& automaton) : automaton_(&automaton), entries_(1) {}

Stacks::Node Stacks::node(int32_t position, Node below) {
  const uint64_t key = uint64_t{static_cast<uint32_t>(position)} << 32 | static_cast<uint32_t>(below);
  const auto [found, is_new] = nodes_.try_emplace(key, static_cast<Node>(entries_.size()));
  if (is_new) entries_.push_back({position, below, 0});
  return found->second;
}

void Stacks::close(Node first, State& state) {
  const auto reach = [this](Node node) {
    uint64_t& visit = entries_[static_cast<size_t>(node)].visit;
    if (std::exchange(visit, visit_) == visit_) return;
    if (++num_reached_ > kMostReached) throw ambiguous(kMostReached);
    open_.push_back(node);
  };
  open_.clear();
  reach(first);
  while (!open_.empty()) {
    const Node node = open_.back();
    open_.pop_back();
    if (node == kBottom) {
      state.has_ended = true;
      continue;
    }
    const auto [at, under, visit] = entries_[static_cast<size_t>(node)];
    if (automaton_->is_end(at)) reach(under);
    bool takes_byte = false;
    for (const Automaton::Edge& edge : automaton_->edges(at)) {
      switch (edge.kind) {
        case Automaton::Kind::Byte: takes_byte = true; break;
        case Automaton::Kind::Skip: reach(this->node(edge.to, under)); break;
        case Automaton::Kind::Call:
          // A call at the end of a rule needs no place to return to, so that a list is no deep recursion.
          reach(this->node(edge.start, automaton_->is_last(edge.to) ? under : this->node(edge.to, under)));
          break;
      }
    }
    if (takes_byte) state.heads.push_back(node);
  }
}

Stacks::State Stacks::enter(Node node) {
  State state;
  start_walk();
  close(node, state);
  std::ranges::sort(state.heads);
  return state;
}

Stacks::State Stacks::take(const State& state, uint8_t byte) {
  State next;
  start_walk();
  for (const Node head : state.heads) {
    const Node under = below(head);
    for (const Automaton::Edge& edge : automaton_->edges(position(head))) {
      if (edge.kind == Automaton::Kind::Byte && edge.first <= byte && byte <= edge.last)
        close(node(edge.to, under), next);
    }
  }
  if (next.heads.size() > kMostHeads) throw ambiguous(kMostHeads);
  std::ranges::sort(next.heads);
  return next;
}

void Stacks::keep(State& state) {
  std::vector<bool> is_kept(entries_.size());
  for (const Node head : state.heads) {
    for (Node node = head; !is_kept[static_cast<size_t>(node)]; node = below(node))
      is_kept[static_cast<size_t>(node)] = true;
  }
  // A node is younger than the one below it.
  const std::vector<Entry> old = std::exchange(entries_, std::vector<Entry>(1));
  nodes_.clear();
  std::vector<Node> moved(old.size());
  for (size_t i = 1; i < old.size(); ++i) {
    if (is_kept[i]) moved[i] = node(old[i].position, moved[static_cast<size_t>(old[i].below)]);
  }
  for (Node& head : state.heads) head = moved[static_cast<size_t>(head)];
}

}  // namespace tessera::text
