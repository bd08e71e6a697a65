// Finds the tokens of a vocabulary that may follow a text.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tessera/text/constraint/stacks.h"
#include "tessera/text/constraint/token_trie.h"

namespace tessera::text {

// Walks the trie of a vocabulary with an automaton. What the walks have found is kept: the tokens that stay
// within one rule, or within what it calls, are found once for all stacks that lie below it. One thread at a
// time uses an object; automaton and trie must outlive it.
class TokenMasks {
 public:
  TokenMasks(const Automaton& automaton, const TokenTrie& trie);

  // Sets the bits, one for each id, of the tokens that may follow a state of `stacks`. The other bits stay.
  // Throws what Stacks::take() throws, and Error(Config, "CONSTRAINT-SIZE") if a walk needs too many states.
  void allow(const Stacks& stacks, const Stacks::State& state, std::span<uint64_t> bits);

 private:
  using StateId = int32_t;
  // The result of walking below some nodes of the trie from one state: the tokens that may follow, and the
  // nodes at which the first rule of the stacks may have ended.
  struct Part {
    std::vector<int32_t> tokens;  // if they are few
    std::vector<uint64_t> bits;   // if they are many
    std::vector<int32_t> returns;

    int64_t bytes() const;
    void add_to(std::span<uint64_t> all) const;
  };

  StateId intern(Stacks::State state);
  StateId step(StateId from, int32_t byte_class);
  // Returns what follows in `state`: where `before` has returned, or at the root if it is null.
  const Part& part(const Part* before, StateId state);
  void walk_below(int32_t node, StateId state, std::vector<int32_t>& tokens, std::vector<int32_t>& returns);
  void forget_if_large();

  const Automaton& automaton_;
  const TokenTrie& trie_;
  Stacks stacks_;  // their bottom is that of the first rule of a walk
  std::vector<Stacks::State> states_;
  std::vector<StateId> next_;  // [states, classes of bytes]
  std::unordered_multimap<size_t, StateId> ids_;
  std::map<std::pair<const Part*, StateId>, Part> parts_;
  int64_t part_bytes_ = 0;
  std::vector<StateId> path_;
};

}  // namespace tessera::text
