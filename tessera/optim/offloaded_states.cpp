#include "tessera/optim/offloaded_states.h"

#include <algorithm>
#include <utility>

#include <ATen/ATen.h>
#include <c10/core/StreamGuard.h>

#include "tessera/core/error.h"
#include "tessera/core/round_up.h"
#include "tessera/device/device.h"
#include "tessera/device/memory_scope.h"
#include "tessera/device/pinned_memory.h"

namespace tessera::optim {

// [Note: chunks in flight] Three streams take part in an update: to_device_ brings chunks into the buffers,
// the current stream updates them there, and to_host_ copies them home. The host only submits; events order
// the streams. For each chunk, in its buffer:
//
//   to_device_   waits for buffer.is_free and chunk.is_home,  copies,   records buffer.is_here
//   current      waits for buffer.is_here,                    updates,  records buffer.is_updated
//   to_host_     waits for buffer.is_updated,                 copies,   records buffer.is_free, chunk.is_home
//
// is_free keeps a chunk out of a buffer that the chunk before the last has not left yet. is_home keeps the
// next update() from reading host memory into which the values of this one are still being copied. is_updated
// stands for everything that the current stream has run so far, thus also for earlier reads of tiles that lie
// on the host: only then are these overwritten. The copy of the next chunk is submitted ahead of the update
// of this one, so that the two overlap.
OffloadedStates::OffloadedStates(const std::vector<at::Tensor>& tiles, c10::Device device,
                                 int64_t states_per_tile, int64_t chunk_elements,
                                 std::optional<at::ScalarType> state_type)
    : tiles_(tiles),
      device_(device),
      brings_tiles_(tiles.at(0).device() != device),
      states_per_tile_(states_per_tile),
      state_type_(state_type),
      to_device_(pool_stream(device_)),
      to_host_(pool_stream(device_)) {
  TESSERA_ASSERT(has_streams(device_), "states are offloaded from a device that has streams");
  int64_t num_bytes = 0;
  for (size_t tile = 0; tile < tiles_.size(); ++tile) {
    TESSERA_ASSERT((tiles_[tile].device() != device_) == brings_tiles_,
                   "tiles lie all on the device or all beside it");
    num_bytes +=
        states_per_tile_ * tiles_[tile].numel() * static_cast<int64_t>(c10::elementSize(state_type_of(tile)));
  }
  require_host_memory(num_bytes, "HOST-STATES", "the optimizer states",
                      "shard them over more ranks (zero_stage 1 to 3), or leave them on the device");
  deal(chunk_elements);
  for (Chunk& chunk : chunks_) {
    const Place& last = chunk.places.back();
    const int64_t width = round_up(last.offset + last.size, kAlignment);
    chunk.host = empty_pinned({states_per_tile_, width}, state_type_of(last.tile), device_).zero_();
  }
}

OffloadedStates::~OffloadedStates() {
  try {
    // The buffers go back to LibTorch's allocator, which gives them out again in the order of the current
    // stream: that stream first waits for the copies that still read them.
    for (const Chunk& chunk : chunks_) chunk.is_home.wait();
  } catch (const std::exception&) {  // the device has failed, which other calls report
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
  for (const Chunk& chunk : chunks_) num_bytes = std::max(num_bytes, num_buffer_bytes(chunk));
  for (size_t i = 0; i < std::min<size_t>(2, chunks_.size()); ++i) {
    const auto options = at::TensorOptions(device_).dtype(at::kByte);
    buffers_.emplace_back(at::empty({num_bytes}, options), device_);
    // The allocator may give out memory that work submitted to the current stream still uses. A chunk comes
    // on another stream, so it has to wait for that work.
    buffers_.back().is_free.record();
  }
}

at::Tensor OffloadedStates::states_in(const Chunk& chunk, const Buffer& buffer) {
  return buffer.bytes.narrow(0, 0, static_cast<int64_t>(chunk.host.nbytes()))
      .view(chunk.host.scalar_type())
      .view(chunk.host.sizes());
}

at::Tensor OffloadedStates::values_in(const Chunk& chunk, const Buffer& buffer) const {
  const auto begin = static_cast<int64_t>(chunk.host.nbytes());
  return buffer.bytes.narrow(0, begin, num_buffer_bytes(chunk) - begin)
      .view(tiles_[chunk.places.front().tile].scalar_type());
}

int64_t OffloadedStates::num_buffer_bytes(const Chunk& chunk) const {
  const auto of_states = static_cast<int64_t>(chunk.host.nbytes());
  if (!brings_tiles_) return of_states;
  return of_states +
         chunk.host.size(1) * static_cast<int64_t>(tiles_[chunk.places.front().tile].element_size());
}

void OffloadedStates::for_each_copy(
    const Chunk& chunk, const Buffer& buffer,
    const std::function<void(const at::Tensor&, const at::Tensor&)>& f) const {
  f(chunk.host, states_in(chunk, buffer));
  if (!brings_tiles_) return;
  const at::Tensor values = values_in(chunk, buffer);
  for (const Place& place : chunk.places) {
    f(tiles_[place.tile].view({-1}).narrow(0, place.begin, place.size),
      values.narrow(0, place.offset, place.size));
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
    // The next chunk comes while this one is updated. Its buffer is that of the chunk before this one, which
    // has already been sent home.
    if (i == 0) bring(*wanted[i], buffer_of(i));
    if (i + 1 < wanted.size()) bring(*wanted[i + 1], buffer_of(i + 1));
    const at::Tensor states = states_in(*wanted[i], buffer_of(i));
    const at::Tensor values = brings_tiles_ ? values_in(*wanted[i], buffer_of(i)) : at::Tensor();
    std::vector<StatePiece> pieces;
    for (const Place& place : wanted[i]->places) {
      if (!wants(place)) continue;
      pieces.push_back({place.tile, place.begin, place.size, {}, {}});
      StatePiece& piece = pieces.back();
      piece.values =
          brings_tiles_ ? values.narrow(0, place.offset, place.size) : piece.of(tiles_[place.tile]);
      for (int64_t state = 0; state < states_per_tile_; ++state)
        piece.states.push_back(states.select(0, state).narrow(0, place.offset, place.size));
    }
    buffer_of(i).is_here.wait();
    run(pieces);
    take_home(*wanted[i], buffer_of(i));
  }
  // Who runs next on the current stream may read the tiles. to_host_ copies the chunks in this order, so the
  // event of the last one stands for all.
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
  if (parts.empty()) return at::empty(tiles_[tile].sizes(), on_host(state_type_of(tile)));
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
