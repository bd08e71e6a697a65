#include "tessera/optim/optimizer.h"

#include <array>
#include <cmath>
#include <utility>

#include <ATen/ATen.h>

#include "tessera/core/check_argument.h"
#include "tessera/core/error.h"
#include "tessera/core/rng.h"
#include "tessera/device/device.h"
#include "tessera/device/device_event.h"
#include "tessera/device/host_memory.h"
#include "tessera/device/torch_dtype.h"
#include "tessera/ops/adamw.h"
#include "tessera/optim/offloaded_states.h"
#include "tessera/optim/spilled_states.h"
#include "tessera/optim/tile_numbers.h"
#include "tessera/optim/tile_states.h"

namespace tessera::optim {
namespace {

c10::Device device_of(const OptimizedTile& tile) { return tile.updated_on.value_or(tile.tile.device()); }

class AdamW : public Optimizer {
 public:
  AdamW(std::vector<OptimizedTile> tiles, const AdamWOptions& options)
      : tiles_(checked_tiles(std::move(tiles))), options_(options) {
    const at::NoGradGuard no_grad;
    std::vector<at::Tensor> values;
    for (const OptimizedTile& tile : tiles_) {
      TESSERA_CHECK_ARGUMENT(tile.tile.is_contiguous(), "the tile of '" + tile.name + "' is not dense");
      values.push_back(tile.tile.detach());
      steps_.push_back(at::zeros({1}, on_host(at::kFloat)));
      if (options.has_bf16_states)
        numbers_.emplace_back(tile.layout.shape(), tile.layout.local_box(tile.coordinates));
    }
    if (options.spill) {
      spill(*options.spill);
      return;
    }
    if (!tiles_.empty() && has_streams(device_of(tiles_[0])) &&
        (options.offload_chunk_elements > 0 || device_of(tiles_[0]) != values[0].device())) {
      const int64_t elements = options.offload_chunk_elements;
      offloaded_ = std::make_unique<OffloadedStates>(
          values, device_of(tiles_[0]), std::ssize(kElementStates),
          elements > 0 ? elements : OffloadedStates::kChunkElements,
          options.has_bf16_states ? std::optional(at::kBFloat16) : std::nullopt);
      return;
    }
    for (size_t i = 0; i < values.size(); ++i) {
      const auto options_of_state = values[i].options().dtype(state_type(i));
      states_.push_back(
          {at::zeros_like(values[i], options_of_state), at::zeros_like(values[i], options_of_state)});
    }
  }

  void update(const Update& update) override {
    ops::AdamWUpdate common;
    common.beta1 = options_.beta1;
    common.beta2 = options_.beta2;
    common.epsilon = options_.epsilon;
    common.gradient_scale = update.gradient_scale;
    std::vector<ops::AdamWUpdate> updates(tiles_.size(), common);
    std::vector<bool> is_updated(tiles_.size(), false);
    for (size_t i = 0; i < tiles_.size(); ++i) {
      if (!update.wants(i) || !tiles_[i].tile.grad().defined()) continue;
      // Counts also an update that device_scale, which the host does not know yet, turns out to forbid: the
      // step that gives NaN ends the run.
      steps_[i].add_(1.0);
      is_updated[i] = tiles_[i].tile.numel() > 0;
      updates[i].step = steps_[i].item<int64_t>();
      updates[i].learning_rate = update.lr * tiles_[i].lr_scale;
      updates[i].weight_decay = tiles_[i].weight_decay;
    }
    std::vector<ops::AdamWTensors> all;
    if (spilled_ != nullptr) {
      SpilledPass pass(*spilled_, is_updated);
      for (size_t i = 0; i < tiles_.size(); ++i) {
        if (!is_updated[i]) continue;
        pass.visit(i, [&](StatePiece piece) {
          piece.values = piece.of(tiles_[i].tile.detach());
          all.clear();
          add(all, piece, updates[i]);
          ops::adamw(all, update.device_scale);
        });
      }
      return pass.finish();
    }
    if (offloaded_ == nullptr) {
      for (size_t i = 0; i < tiles_.size(); ++i) {
        if (!is_updated[i]) continue;
        StatePiece piece{i, 0, tiles_[i].tile.numel(), {}, {}};
        piece.values = piece.of(tiles_[i].tile.detach());
        for (const at::Tensor& state : states_[i]) piece.states.push_back(piece.of(state));
        add(all, piece, updates[i]);
      }
      return ops::adamw(all, update.device_scale);
    }
    offloaded_->update(is_updated, [&](const std::vector<StatePiece>& pieces) {
      all.clear();
      for (const StatePiece& piece : pieces) add(all, piece, updates[piece.tile]);
      ops::adamw(all, update.device_scale);
    });
  }

  std::optional<StateTraffic> traffic() const override {
    return spilled_ == nullptr ? std::nullopt : std::optional(spilled_->traffic());
  }

  std::vector<checkpoint::StateTensor> states() override {
    std::vector<checkpoint::StateTensor> all;
    for (size_t i = 0; i < tiles_.size(); ++i) {
      for (size_t s = 0; s < std::size(kElementStates); ++s) all.push_back(element_state(i, s));
      all.push_back(parameter_state(tiles_[i], "step", steps_[i]));
    }
    return all;
  }

 private:
  static constexpr const char* kElementStates[] = {"exp_avg", "exp_avg_sq"};

  void spill(const SpillPlace& place) {
    std::vector<SpilledTile> spilled;
    for (size_t i = 0; i < tiles_.size(); ++i) {
      const at::Tensor& tile = tiles_[i].tile;
      TESSERA_CHECK_ARGUMENT(device_of(tiles_[i]) == tile.device(),
                             "the tile of '" + tiles_[i].name + "' lies beside the device that updates it");
      spilled.push_back({tile.numel(), std::vector<at::ScalarType>(std::size(kElementStates), state_type(i)),
                         tile.device()});
    }
    spilled_ = std::make_unique<SpilledStates>(std::move(spilled), place);
  }

  at::ScalarType state_type(size_t i) const {
    return options_.has_bf16_states ? at::kBFloat16 : tiles_[i].tile.scalar_type();
  }

  // Appends a piece to the work of an update. Stochastic rounding needs the numbers of the elements, so the
  // piece is then appended in as many parts as these numbers need.
  void add(std::vector<ops::AdamWTensors>& all, const StatePiece& piece,
           const ops::AdamWUpdate& update) const {
    const OptimizedTile& tile = tiles_[piece.tile];
    const at::Tensor gradient = piece.of(tile.tile.grad().detach());
    if (!options_.has_bf16_states) {
      all.push_back({piece.values, gradient, piece.states[0], piece.states[1], update});
      return;
    }
    const auto step = static_cast<uint64_t>(update.step);
    const auto random = [&](const char* of) {
      return CounterRng(options_.seed, stream_of((tile.name + "/" + of).c_str()), step);
    };
    for (const NumberedPart& part : numbers_[piece.tile].parts(piece.begin, piece.size)) {
      const auto of_part = [&](const at::Tensor& x) {
        return x.narrow(0, part.begin - piece.begin, part.size);
      };
      all.push_back({of_part(piece.values), of_part(gradient), of_part(piece.states[0]),
                     of_part(piece.states[1]), update,
                     ops::AdamWRounding{random("value"), random(kElementStates[0]), random(kElementStates[1]),
                                        step, part.numbers}});
    }
  }

  // Returns state `s` of tile `i`, which has a value for every element of the parameter.
  checkpoint::StateTensor element_state(size_t i, size_t s) {
    const OptimizedTile& tile = tiles_[i];
    const std::string name = tile.name + "/" + kElementStates[s];
    const parallel::Layout layout(tile.layout.shape(), to_dtype(state_type(i)), tile.layout.axes());
    if (spilled_ != nullptr) return spilled_state(*spilled_, i, s, name, layout, tile.coordinates);
    if (offloaded_ == nullptr) return checkpoint::state_tensor(name, layout, tile.coordinates, states_[i][s]);
    const auto state = static_cast<int64_t>(s);
    return {name, layout, tile.coordinates, [this, i, state] { return offloaded_->get(i, state); },
            [this, i, state](const at::Tensor& values) { offloaded_->set(i, state, values); }};
  }

  std::vector<OptimizedTile> tiles_;
  AdamWOptions options_;
  std::vector<at::Tensor> steps_;
  std::vector<TileNumbers> numbers_;  // of each tile; empty without stochastic rounding
  // exp_avg and exp_avg_sq of each tile; empty where offloaded_ or spilled_ holds them.
  std::vector<std::array<at::Tensor, std::size(kElementStates)>> states_;
  std::unique_ptr<OffloadedStates> offloaded_;
  std::unique_ptr<SpilledStates> spilled_;
};

class Sgd : public Optimizer {
 public:
  explicit Sgd(std::vector<OptimizedTile> tiles) : tiles_(checked_tiles(std::move(tiles))) {}

  void update(const Update& asked) override {
    const at::NoGradGuard no_grad;
    Update update = asked;
    if (update.device_scale.defined() && is_on_host(update.device_scale)) {
      // On the host the factor is a value that can be read at once.
      const double scale = host_span<const double>(update.device_scale)[0];
      if (std::isnan(scale)) return;
      update.gradient_scale *= scale;
      update.device_scale = at::Tensor();
    }
    for (size_t i = 0; i < tiles_.size(); ++i) {
      const OptimizedTile& optimized = tiles_[i];
      const at::Tensor& gradient = optimized.tile.grad();
      if (!update.wants(i) || !gradient.defined()) continue;
      // A tile in pinned memory is copied to the device and back, in the order of the current stream.
      const at::Tensor own = optimized.tile.detach();
      const bool is_here = device_of(optimized) == own.device();
      const at::Tensor tile =
          is_here ? own : at::empty(own.sizes(), own.options().device(device_of(optimized)));
      if (!is_here) tile.copy_(own, /*non_blocking=*/true);
      move(tile, gradient.detach(), optimized, update);
      if (!is_here) own.copy_(tile, /*non_blocking=*/true);
    }
  }
  std::vector<checkpoint::StateTensor> states() override { return {}; }

 private:
  static void move(const at::Tensor& tile, const at::Tensor& gradient, const OptimizedTile& optimized,
                   const Update& update) {
    const double lr = update.lr * optimized.lr_scale, decay = 1.0 - lr * optimized.weight_decay;
    const at::Tensor& device_scale = update.device_scale;
    if (device_scale.defined()) {
      const at::Tensor down = gradient * device_scale.to(tile.scalar_type()) * (lr * update.gradient_scale);
      tile.copy_(at::where(device_scale.isnan(), tile, tile * decay - down));
      return;
    }
    if (optimized.weight_decay != 0.0) tile.mul_(decay);
    tile.add_(gradient, -lr * update.gradient_scale);
  }

  std::vector<OptimizedTile> tiles_;
};

}  // namespace

std::unique_ptr<Optimizer> make_adamw(std::vector<OptimizedTile> tiles, const AdamWOptions& options) {
  return std::make_unique<AdamW>(std::move(tiles), options);
}

std::unique_ptr<Optimizer> make_sgd(std::vector<OptimizedTile> tiles) {
  return std::make_unique<Sgd>(std::move(tiles));
}

}  // namespace tessera::optim
