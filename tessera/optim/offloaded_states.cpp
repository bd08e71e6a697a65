#include "tessera/optim/offloaded_states.h"

#include <algorithm>
#include <utility>

#include <ATen/ATen.h>
#include <c10/core/StreamGuard.h>

#include "tessera/core/device.h"
#include "tessera/core/error.h"
#include "tessera/core/memory_scope.h"
#include "tessera/core/pinned_memory.h"
#include "tessera/core/round_up.h"

namespace tessera::optim {

OffloadedStates::OffloadedStates(const std::vector<at::Tensor>& tiles, c10::Device device,
                                 int64_t states_per_tile, int64_t chunk_elements)
    : tiles_(tiles),
      device_(device),
      brings_tiles_(tiles.at(0).device() != device),
      states_per_tile_(states_per_tile),
      to_device_(pool_stream(device_)),
      to_host_(pool_stream(device_)) {
  TESSERA_ASSERT(has_streams(device_), "states are offloaded from a device that has streams");
  int64_t num_bytes = 0;
  for (const at::Tensor& tile : tiles_) {
    TESSERA_ASSERT((tile.device() != device_) == brings_tiles_,
                   "tiles lie all on the device or all beside it");
    num_bytes += states_per_tile_ * static_cast<int64_t>(tile.nbytes());
  }
  require_host_memory(num_bytes, "HOST-STATES", "the optimizer states",
                      "share them out over more ranks (zero_stage 1 to 3), or leave them on the device");
  deal(chunk_elements);
  for (Chunk& chunk : chunks_) {
    const Place& last = chunk.places.back();
    const int64_t width = round_up(last.offset + last.size, kAlignment);
    chunk.host = empty_pinned({states_per_tile_, width}, tiles_[last.tile].scalar_type(), device_).zero_();
  }
}

OffloadedStates::~OffloadedStates() {
  try {
    // The buffers are the current stream's again.
    for (const Chunk& chunk : chunks_) chunk.is_home.wait();
  } catch (const std::exception&) {  // the device has failed, as others have said
  }
}

void OffloadedStates::deal(int64_t chunk_elements) {
  int64_t used = 0;
  for (size_t tile = 0; tile < tiles_.size(); ++tile) {
    for (int64_t begin = 0; begin < tiles_[tile].numel();) {
      const bool fits = !chunks_.empty() && used < chunk_elements &&
                        tiles_[chunks_.back().places.back().tile].scalar_type() == tiles_[tile].scalar_type();
      if (!fits) {
        chunks_.emplace_back(device_);
        used = 0;
      }
      const int64_t size = std::min(tiles_[tile].numel() - begin, chunk_elements - used);
      chunks_.back().places.push_back({tile, begin, size, used});
      begin += size;
      used += round_up(size, kAlignment);
    }
  }
}

void OffloadedStates::allocate_buffers() {
  if (!buffers_.empty()) return;
  const MemoryScope memory(MemoryCategory::OptimizerState);
  int64_t num_bytes = 0;
  for (const Chunk& chunk : chunks_)
    num_bytes =
        std::max(num_bytes, static_cast<int64_t>(chunk.host.nbytes()) / states_per_tile_ * num_rows());
  for (size_t i = 0; i < std::min<size_t>(2, chunks_.size()); ++i) {
    const auto options = at::TensorOptions(device_).dtype(at::kByte);
    buffers_.emplace_back(at::empty({num_bytes}, options), device_);
    // What had the memory before is through.
    buffers_.back().is_free.record();
  }
}

at::Tensor OffloadedStates::in_buffer(const Chunk& chunk, const Buffer& buffer) const {
  const int64_t width = chunk.host.size(1), element = chunk.host.element_size();
  return buffer.bytes.narrow(0, 0, num_rows() * width * element)
      .view(chunk.host.scalar_type())
      .view({num_rows(), width});
}

void OffloadedStates::for_each_copy(
    const Chunk& chunk, const Buffer& buffer,
    const std::function<void(const at::Tensor&, const at::Tensor&)>& f) const {
  const at::Tensor rows = in_buffer(chunk, buffer);
  f(chunk.host, rows.narrow(0, 0, states_per_tile_));
  if (!brings_tiles_) return;
  for (const Place& place : chunk.places) {
    f(tiles_[place.tile].view({-1}).narrow(0, place.begin, place.size),
      rows.select(0, states_per_tile_).narrow(0, place.offset, place.size));
  }
}

void OffloadedStates::bring(const Chunk& chunk, Buffer& buffer) const {
  const c10::StreamGuard guard(to_device_);
  buffer.is_free.wait();
  chunk.is_home.wait();
  for_each_copy(chunk, buffer, [](const at::Tensor& on_host, const at::Tensor& here) {
    here.copy_(on_host, /*non_blocking=*/true);
  });
  buffer.is_here.record();
}

void OffloadedStates::take_home(Chunk& chunk, Buffer& buffer) const {
  buffer.is_updated.record();
  const c10::StreamGuard guard(to_host_);
  buffer.is_updated.wait();
  for_each_copy(chunk, buffer, [](const at::Tensor& on_host, const at::Tensor& here) {
    on_host.copy_(here, /*non_blocking=*/true);
  });
  buffer.is_free.record();
  chunk.is_home.record();
}

void OffloadedStates::update(const std::vector<bool>& is_wanted,
                             const std::function<void(const std::vector<StatePiece>& pieces)>& run) {
  const at::NoGradGuard no_grad;
  allocate_buffers();
  const auto wants = [&](const Place& place) { return is_wanted[place.tile]; };
  std::vector<Chunk*> wanted;
  for (Chunk& chunk : chunks_) {
    if (std::ranges::any_of(chunk.places, wants)) wanted.push_back(&chunk);
  }
  const auto buffer_of = [&](size_t i) -> Buffer& { return buffers_[i % buffers_.size()]; };
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (i == 0) bring(*wanted[i], buffer_of(i));
    if (i + 1 < wanted.size()) bring(*wanted[i + 1], buffer_of(i + 1));
    const at::Tensor values = in_buffer(*wanted[i], buffer_of(i));
    std::vector<StatePiece> pieces;
    for (const Place& place : wanted[i]->places) {
      if (!wants(place)) continue;
      pieces.push_back({place.tile, place.begin, place.size, {}, {}});
      StatePiece& piece = pieces.back();
      piece.values = brings_tiles_ ? values.select(0, states_per_tile_).narrow(0, place.offset, place.size)
                                   : piece.of(tiles_[place.tile]);
      for (int64_t state = 0; state < states_per_tile_; ++state)
        piece.states.push_back(values.select(0, state).narrow(0, place.offset, place.size));
    }
    buffer_of(i).is_here.wait();
    run(pieces);
    take_home(*wanted[i], buffer_of(i));
  }
  // One stream takes them home, in this order.
  if (brings_tiles_ && !wanted.empty()) wanted.back()->is_home.wait();
}

void OffloadedStates::for_each_place(size_t tile,
                                     const std::function<void(const Chunk&, const Place&)>& f) const {
  for (const Chunk& chunk : chunks_) {
    for (const Place& place : chunk.places) {
      if (place.tile == tile) f(chunk, place);
    }
  }
}

at::Tensor OffloadedStates::get(size_t tile, int64_t state) const {
  std::vector<at::Tensor> parts;
  for_each_place(tile, [&](const Chunk& chunk, const Place& place) {
    chunk.is_home.synchronize();
    parts.push_back(chunk.host.select(0, state).narrow(0, place.offset, place.size));
  });
  if (parts.empty()) return at::empty(tiles_[tile].sizes(), on_host(tiles_[tile].scalar_type()));
  return (parts.size() == 1 ? parts[0] : at::cat(parts)).view(tiles_[tile].sizes());
}

void OffloadedStates::set(size_t tile, int64_t state, const at::Tensor& values) {
  const at::NoGradGuard no_grad;
  const at::Tensor flat = values.reshape({-1});
  for_each_place(tile, [&](const Chunk& chunk, const Place& place) {
    chunk.is_home.synchronize();
    chunk.host.select(0, state)
        .narrow(0, place.offset, place.size)
        .copy_(flat.narrow(0, place.begin, place.size));
  });
}

}  // namespace tessera::optim
