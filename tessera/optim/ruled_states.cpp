#include "tessera/optim/ruled_states.h"

#include <utility>

namespace tessera::optim {

RuledStates::RuledStates(const std::vector<RuledTile>& tiles, const SpillPlace& place) {
  std::vector<SpilledTile> spilled;
  for (const RuledTile& ruled : tiles) {
    spilled.push_back({ruled.numel(), {}, ruled.tile.tile.device(), ruled.is_whole()});
    for (size_t s = 0; s < ruled.listed.size(); ++s) {
      if (ruled.is_tile(s)) spilled.back().types.push_back(ruled.type_of(s));
    }
  }
  spilled_ = std::make_unique<SpilledStates>(std::move(spilled), place);
  for (size_t i = 0; i < tiles.size(); ++i) {
    for (size_t s = 0; s < tiles[i].listed.size(); ++s) {
      if (tiles[i].is_tile(s) && tiles[i].listed[s].start == RuleState::Start::Value)
        spilled_->set(i, tiles[i].tile_number(s), tiles[i].tile.tile.detach());
    }
  }
}

checkpoint::StateTensor RuledStates::listed(const RuledTile& ruled, size_t number, size_t state) const {
  const OptimizedTile& tile = ruled.tile;
  const std::string name = tile.name + "/" + ruled.listed[state].name;
  const bool is_spilled = spilled_ != nullptr && ruled.is_tile(state);
  if (!is_spilled)
    return checkpoint::state_tensor(name, ruled.layout_of(state), tile.coordinates, ruled.states[state]);
  return spilled_state(*spilled_, number, ruled.tile_number(state), name, ruled.layout_of(state),
                       tile.coordinates);
}

std::optional<StateTraffic> RuledStates::traffic() const {
  return spilled_ == nullptr ? std::nullopt : std::optional(spilled_->traffic());
}

RuledStates::Visit::Visit(RuledStates& states, const std::vector<bool>& is_wanted) : is_wanted_(is_wanted) {
  if (states.spilled_ != nullptr) pass_ = std::make_unique<SpilledPass>(*states.spilled_, is_wanted);
}

void RuledStates::Visit::run(const RuledTile& ruled, size_t number, std::vector<at::Tensor>& states,
                             const std::function<void(int64_t begin, int64_t size)>& work, bool changes) {
  bool has_any = false;
  for (size_t s = 0; s < ruled.listed.size(); ++s) has_any = has_any || ruled.is_tile(s);
  if (pass_ == nullptr || !is_wanted_[number] || !has_any) return work(0, ruled.numel());
  pass_->visit(
      number,
      [&](const StatePiece& piece) {
        size_t next = 0;
        for (size_t s = 0; s < states.size(); ++s) {
          if (!ruled.is_tile(s)) continue;
          const at::Tensor& state = piece.states[next++];
          states[s] = piece.size == ruled.numel() ? state.view(ruled.tile.tile.sizes()) : state;
        }
        work(piece.begin, piece.size);
      },
      changes);
  for (size_t s = 0; s < states.size(); ++s) {
    if (ruled.is_tile(s)) states[s] = at::Tensor();
  }
}

void RuledStates::Visit::finish() {
  if (pass_ != nullptr) pass_->finish();
}

}  // namespace tessera::optim
