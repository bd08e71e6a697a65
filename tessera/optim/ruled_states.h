// Gives Tile states of ruled tiles, which lie in the tiles themselves or on a drive.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "tessera/optim/ruled_tile.h"
#include "tessera/optim/spilled_states.h"

namespace tessera::optim {

class RuledStates {
 public:
  // The states lie in the tiles.
  RuledStates() = default;
  // They lie on a drive, with the values that their rules begin with. The tiles are made without them
  // (RuledTile::RuledTile). Throws what SpilledStates throws.
  RuledStates(const std::vector<RuledTile>& tiles, const SpillPlace& place);

  // Returns a state of tile number `number` as a tensor of a checkpoint.
  checkpoint::StateTensor listed(const RuledTile& ruled, size_t number, size_t state) const;
  std::optional<StateTraffic> traffic() const;

  // Goes once through the states of the wanted tiles.
  class Visit {
   public:
    // See SpilledPass::SpilledPass().
    Visit(RuledStates& states, const std::vector<bool>& is_wanted);
    // Calls `work` for elements [begin, begin + size) of tile number `number` after others, with their states
    // in `states`, in the form that RuleUpdate::states has: all elements at once where states lie in the
    // tiles or the rule is not element-wise. Where they do not, the Tile states in `states` are undefined
    // afterwards, and for a tile that is not wanted. Tiles come in the order of their numbers. `changes`:
    // `work` does not only read the Tile states.
    void run(const RuledTile& ruled, size_t number, std::vector<at::Tensor>& states,
             const std::function<void(int64_t begin, int64_t size)>& work, bool changes = true);
    // Waits until everything is on the drive.
    void finish();
    // Says that states are valid only within run().
    bool is_passing() const { return pass_ != nullptr; }

   private:
    const std::vector<bool> is_wanted_;
    std::unique_ptr<SpilledPass> pass_;
  };

 private:
  std::unique_ptr<SpilledStates> spilled_;
};

}  // namespace tessera::optim
