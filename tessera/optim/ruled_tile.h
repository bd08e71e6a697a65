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
  std::vector<at::Tensor> states;           // one for each of `listed`; undefined where it lies elsewhere
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
  // beside its device, that is not dense, or whose rule needs axes that it does not have. `seed` is that of
  // make_ruled(). `holds_tiles`: Tile states lie here too, not elsewhere.
  RuledTile(OptimizedTile tile, const std::function<RulePtr(const RuleParameter&)>& rule_of, uint64_t seed,
            bool holds_tiles = true);

  int64_t numel() const { return tile.tile.numel(); }
  bool is_tile(size_t state) const { return listed[state].form == RuleState::Form::Tile; }
  // Counts the Tile states ahead of this one.
  size_t tile_number(size_t state) const;
  at::ScalarType type_of(size_t state) const { return listed[state].type.value_or(parameter.type); }
  // The rule needs the states of the tile in one piece.
  bool is_whole() const { return !rule->is_elementwise() || rule->num_rounds() > 0; }
  // Returns the layout of a state.
  parallel::Layout layout_of(size_t state) const;
  // Returns the gradient, of the parameter's type, times `scale`: a tensor of its own.
  at::Tensor scaled_gradient(double scale) const;
  // Returns rule->measure(round, ...) of the tile, which has elements: [measured_size()]. As in apply(),
  // `update` has everything but value and gradient, which is that of the tile times `scale`.
  at::Tensor measure(int64_t round, const RuleUpdate& update, double scale) const;
  // Runs rule->apply() for the whole tile.
  void apply(const RuleUpdate& update, double scale) const { apply(update, scale, 0, numel()); }
  // Does so for the elements [begin, begin + size) of the flat tile, which are all unless the rule is
  // element-wise. The Tile states in `update` are those of these elements.
  void apply(const RuleUpdate& update, double scale, int64_t begin, int64_t size) const;

 private:
  // Stores the new values of the elements from `begin` on, if `value` is not the tile's own memory.
  void store(const at::Tensor& value, int64_t begin, int64_t step) const;
  // Calls f(update, begin) for a few rows of the tile at a time, whose first element is number `begin`, or
  // for all of them if the rule transforms matrices.
  void for_rows(const RuleUpdate& update, double scale,
                const std::function<void(RuleUpdate& rows, int64_t begin)>& f) const;
  void apply_piece(const RuleUpdate& update, double scale, int64_t begin, int64_t offset, int64_t size) const;
  at::Tensor first_values(const RuleState& state) const;
};

}  // namespace tessera::optim
