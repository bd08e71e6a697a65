#include "tessera/text/constraint/token_masks.h"

#include <algorithm>

namespace tessera::text {
namespace {

constexpr int32_t kUnknown = -1, kDead = 0;
constexpr size_t kMostStates = size_t{1} << 18, kManyStates = size_t{1} << 15;
constexpr int64_t kManyPartBytes = int64_t{16} << 20;

void set_bit(std::span<uint64_t> bits, int32_t id) {
  bits[static_cast<size_t>(id) / 64] |= uint64_t{1} << (id % 64);
}

}  // namespace

int64_t TokenMasks::Part::bytes() const {
  return std::ssize(tokens) * 4 + std::ssize(bits) * 8 + std::ssize(returns) * 4;
}

void TokenMasks::Part::add_to(std::span<uint64_t> all) const {
  for (const int32_t id : tokens) set_bit(all, id);
  for (size_t i = 0; i < bits.size(); ++i) all[i] |= bits[i];
}

TokenMasks::TokenMasks(const Automaton& automaton, const TokenTrie& trie)
    : automaton_(automaton), trie_(trie), stacks_(automaton), path_(static_cast<size_t>(trie.depth()) + 1) {
  intern({});
}

TokenMasks::StateId TokenMasks::intern(Stacks::State state) {
  size_t hash = state.has_ended ? 1 : 0;
  for (const Stacks::Node head : state.heads) hash = (hash ^ static_cast<size_t>(head)) * 0x9e3779b97f4a7c15U;
  const auto [begin, end] = ids_.equal_range(hash);
  for (auto each = begin; each != end; ++each) {
    if (states_[static_cast<size_t>(each->second)] == state) return each->second;
  }
  if (states_.size() >= kMostStates)
    throw constraint_error("SIZE", "the constraint needs too many states to find the next token");
  const auto id = static_cast<StateId>(states_.size());
  ids_.emplace(hash, id);
  states_.push_back(std::move(state));
  next_.resize(next_.size() + automaton_.class_bytes().size(), kUnknown);
  return id;
}

TokenMasks::StateId TokenMasks::step(StateId from, int32_t byte_class) {
  const size_t place =
      static_cast<size_t>(from) * automaton_.class_bytes().size() + static_cast<size_t>(byte_class);
  if (next_[place] == kUnknown) {
    const uint8_t byte = automaton_.class_bytes()[static_cast<size_t>(byte_class)];
    const StateId to = intern(stacks_.take(states_[static_cast<size_t>(from)], byte));
    next_[place] = to;
  }
  return next_[place];
}

void TokenMasks::walk_below(int32_t top, StateId state, std::vector<int32_t>& tokens,
                            std::vector<int32_t>& returns) {
  const TokenTrie::Node& first = trie_.node(top);
  path_[static_cast<size_t>(first.depth)] = state;
  for (int32_t number = top + 1; number < first.end;) {
    const TokenTrie::Node& node = trie_.node(number);
    const auto depth = static_cast<size_t>(node.depth);
    const StateId next = step(path_[depth - 1], automaton_.byte_class(node.byte));
    if (next == kDead) {
      number = node.end;
      continue;
    }
    path_[depth] = next;
    const auto ended = trie_.tokens(number);
    tokens.insert(tokens.end(), ended.begin(), ended.end());
    const Stacks::State& reached = states_[static_cast<size_t>(next)];
    if (reached.has_ended) returns.push_back(number);
    number = reached.heads.empty() ? node.end : number + 1;
  }
}

const TokenMasks::Part& TokenMasks::part(const Part* before, StateId state) {
  const auto [found, is_new] = parts_.try_emplace({before, state});
  Part& part = found->second;
  if (!is_new) return part;
  try {
    constexpr int32_t kRoot[] = {0};
    const std::span<const int32_t> nodes = before == nullptr ? kRoot : std::span(before->returns);
    for (const int32_t node : nodes) {
      if (states_[static_cast<size_t>(state)].has_ended) part.returns.push_back(node);
      walk_below(node, state, part.tokens, part.returns);
    }
  } catch (...) {
    parts_.erase(found);
    throw;
  }
  if (std::ssize(part.tokens) * 32 > trie_.vocabulary()) {
    part.bits.resize(static_cast<size_t>(trie_.vocabulary() + 63) / 64);
    for (const int32_t id : part.tokens) set_bit(part.bits, id);
    part.tokens = {};
  }
  part_bytes_ += part.bytes() + static_cast<int64_t>(sizeof(Part));
  return part;
}

void TokenMasks::forget_if_large() {
  if (states_.size() < kManyStates && part_bytes_ < kManyPartBytes) return;
  parts_.clear();
  part_bytes_ = 0;
  states_.clear();
  next_.clear();
  ids_.clear();
  stacks_.clear();
  intern({});
}

void TokenMasks::allow(const Stacks& stacks, const Stacks::State& state, std::span<uint64_t> bits) {
  forget_if_large();
  struct Return {
    Stacks::Node node;   // goes on
    const Part* before;  // where this part has returned
  };
  std::vector<Return> open;
  // Heads on the same stack are walked together.
  std::map<Stacks::Node, Stacks::State> groups;
  for (const Stacks::Node head : state.heads)
    groups[stacks.below(head)].heads.push_back(stacks_.node(stacks.position(head), Stacks::kBottom));
  for (auto& [below, group] : groups) {
    std::ranges::sort(group.heads);
    open.push_back({below, &part(nullptr, intern(std::move(group)))});
  }
  while (!open.empty()) {
    const auto [node, before] = open.back();
    open.pop_back();
    before->add_to(bits);
    if (node == Stacks::kBottom || before->returns.empty()) continue;
    const StateId next = intern(stacks_.enter(stacks_.node(stacks.position(node), Stacks::kBottom)));
    open.push_back({stacks.below(node), &part(before, next)});
  }
}

}  // namespace tessera::text
