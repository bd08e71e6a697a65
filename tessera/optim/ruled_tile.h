// A tile with its rule and its states.
#pragma once

#include <functional>
#include <vector>

#include "tessera/optim/optimizer.h"
#include "tessera/optim/rule.h"

namespace tessera::optim {

struct RuledTile {
  OptimizedTile tile;
  RulePtr rule;
  RuleParameter parameter;
  parallel::Box box;
  std::vector<RuleState> listed;
  std::vector<at::Tensor> states;           // one for each of `listed`
  at::Tensor steps;                         // [1], float32, on the host: the updates so far
  std::vector<comm::Communicator*> groups;  // over which measurements are joined
  bool is_held = true;  // this rank holds a part of the parameter, which may have no elements

  // Makes the states of a tile that checked_tiles() has checked. Throws Error(Config) for a tile that lies
  // beside its device, that is not dense, or whose rule needs axes that it does not have.
  RuledTile(OptimizedTile tile, const std::function<RulePtr(const RuleParameter&)>& rule_of);

  int64_t numel() const { return tile.tile.numel(); }
  // Returns the layout of a state.
  parallel::Layout layout_of(size_t state) const;
  // Returns the gradient, of the parameter's type, times `scale`: a tensor of its own.
  at::Tensor scaled_gradient(double scale) const;
  // Runs rule->apply() for the whole tile, in pieces where the rule is element-wise. `update` has everything
  // but value and gradient, which is that of the tile times `scale`.
  void apply(const RuleUpdate& update, double scale) const;

 private:
  void apply_piece(const RuleUpdate& update, double scale, int64_t begin, int64_t size) const;
  at::Tensor first_values(const RuleState& state) const;
};

}  // namespace tessera::optim
