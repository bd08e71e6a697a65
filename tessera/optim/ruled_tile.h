// A tile with its rule and its states.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "tessera/optim/optimizer.h"
#include "tessera/optim/rule.h"
#include "tessera/optim/tile_numbers.h"

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
  // Stochastic rounding of a tile in bfloat16; unset for other types.
  struct Rounding {
    uint64_t seed, stream;
    TileNumbers numbers;
  };
  std::optional<Rounding> rounding;

  // Makes the states of a tile that checked_tiles() has checked. Throws Error(Config) for a tile that lies
  // beside its device, that is not dense, or whose rule needs axes that it does not have.
  // `seed` is that of make_ruled().
  RuledTile(OptimizedTile tile, const std::function<RulePtr(const RuleParameter&)>& rule_of, uint64_t seed);

  int64_t numel() const { return tile.tile.numel(); }
  // Returns the layout of a state.
  parallel::Layout layout_of(size_t state) const;
  // Returns the gradient, of the parameter's type, times `scale`: a tensor of its own.
  at::Tensor scaled_gradient(double scale) const;
  // Returns rule->measure(round, ...) of the tile, which has elements: [measured_size()]. As in apply(),
  // `update` has everything but value and gradient, which is that of the tile times `scale`.
  at::Tensor measure(int64_t round, const RuleUpdate& update, double scale) const;
  // Runs rule->apply() for the whole tile.
  void apply(const RuleUpdate& update, double scale) const;

 private:
  // Stores the new values of the elements from `begin` on, if `value` is not the tile's own memory.
  void store(const at::Tensor& value, int64_t begin, int64_t step) const;
  // Calls f(update, begin) for a few rows of the tile at a time, whose first element is number `begin`, or
  // for all of them if the rule transforms matrices.
  void for_rows(const RuleUpdate& update, double scale,
                const std::function<void(RuleUpdate& rows, int64_t begin)>& f) const;
  void apply_piece(const RuleUpdate& update, double scale, int64_t begin, int64_t size) const;
  at::Tensor first_values(const RuleState& state) const;
};

}  // namespace tessera::optim
