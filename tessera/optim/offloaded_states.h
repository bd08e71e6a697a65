// Optimizer states that lie on the host while a device updates them, alone or together with the tiles that
// they belong to.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>

#include "tessera/device/device_event.h"

namespace tessera::optim {

// Consecutive elements of one tile, with their optimizer states on the device.
struct StatePiece {
  size_t tile = 0;                 // index of the tile in the list of tiles
  int64_t begin = 0, size = 0;     // the elements [begin, begin + size) of the flat tile
  at::Tensor values;               // [size], on the device
  std::vector<at::Tensor> states;  // [size] each, on the device

  // Returns the same elements of a tensor that has the shape of the tile.
  at::Tensor of(const at::Tensor& x) const { return x.reshape({-1}).narrow(0, begin, size); }
};

// Keeps `states_per_tile` values for every element of the tiles, zero at first, in pinned memory of the host.
// The values lie in chunks, each of which holds elements of one tile after another. update() brings each
// chunk to the device for a while, into two buffers in turn, and with it the elements of tiles that lie in
// pinned memory themselves. While one chunk is updated, the next one comes and the last one goes, on streams
// of their own ([Note: chunks in flight] in the source); the host waits for nothing before the values are
// asked for. Every element is updated as if its tile were in one piece.
class OffloadedStates {
 public:
  // Default size of a chunk in elements of each state. As float32 these are 16 MiB: enough to copy at full
  // speed, and a power of two, to which the sizes of pinned memory are rounded up.
  static constexpr int64_t kChunkElements = int64_t{1} << 22;

  // The tiles are dense and lie either all on `device`, which has streams, or all in pinned memory.
  // `chunk_elements` is the number of elements of each state in a chunk. `state_type` is the dtype of the
  // states; unset, each state has the dtype of its tile. Throws Error(Memory) where the host has no room for
  // all states.
  OffloadedStates(const std::vector<at::Tensor>& tiles, c10::Device device, int64_t states_per_tile,
                  int64_t chunk_elements = kChunkElements,
                  std::optional<at::ScalarType> state_type = std::nullopt);
  ~OffloadedStates();
  OffloadedStates(const OffloadedStates&) = delete;
  OffloadedStates& operator=(const OffloadedStates&) = delete;

  // Calls `run` for one chunk after another with the pieces whose tile is wanted (`is_wanted[tile]`). It
  // changes their values and states on the current stream. What belongs to other tiles stays as it is. Tiles
  // on the host have their new values for whatever the current stream runs next; the host itself has to wait
  // for that stream.
  void update(const std::vector<bool>& is_wanted,
              const std::function<void(const std::vector<StatePiece>& pieces)>& run);

  // Returns state number `state` of a tile on the host, in the shape of the tile: a view of this object's
  // memory where the tile lies in one chunk, else a copy. The host waits until the last update of the state
  // has arrived.
  at::Tensor get(size_t tile, int64_t state) const;
  // Overwrites a state of a tile with `values`, which have the shape of the tile. Waits as get() does.
  void set(size_t tile, int64_t state, const at::Tensor& values);

 private:
  // Each piece begins at a multiple of so many elements, where any dtype is aligned for the widest access of
  // a device.
  static constexpr int64_t kAlignment = 64;

  // Elements of one tile in a chunk.
  struct Place {
    size_t tile;
    int64_t begin, size;  // elements of the flat tile
    int64_t offset;       // of the first of them in each row of the chunk
  };
  struct Chunk {
    explicit Chunk(c10::Device device) : is_home(device) {}
    at::Tensor host;  // [states, elements]
    std::vector<Place> places;
    DeviceEvent is_home;  // the copy to `host` after the last update
  };
  struct Buffer {
    Buffer(at::Tensor memory, c10::Device device)
        : bytes(std::move(memory)), is_free(device), is_here(device), is_updated(device) {}
    at::Tensor bytes;
    // is_free: the last chunk has left the buffer. is_here: a chunk has arrived. is_updated: it has been
    // updated.
    DeviceEvent is_free, is_here, is_updated;
  };

  // Fills chunks_ with places for all elements of the tiles. A chunk holds tiles of one dtype.
  void deal(int64_t chunk_elements);
  void allocate_buffers();
  at::ScalarType state_type_of(size_t tile) const { return state_type_.value_or(tiles_[tile].scalar_type()); }
  // These are views of a buffer: the states, in the shape of chunk.host, and behind them the values of tiles
  // that lie on the host, [elements].
  static at::Tensor states_in(const Chunk& chunk, const Buffer& buffer);
  at::Tensor values_in(const Chunk& chunk, const Buffer& buffer) const;
  int64_t num_buffer_bytes(const Chunk& chunk) const;
  // Calls f(on_host, on_device) for each pair of tensors that is copied to the device and back.
  void for_each_copy(const Chunk& chunk, const Buffer& buffer,
                     const std::function<void(const at::Tensor&, const at::Tensor&)>& f) const;
  // bring() copies a chunk into a buffer, take_home() copies it back, each on its own stream.
  void bring(const Chunk& chunk, Buffer& buffer) const;
  void take_home(Chunk& chunk, Buffer& buffer) const;
  // Calls f(chunk, place) for all places of the tile, in the order of its elements.
  void for_each_place(size_t tile, const std::function<void(const Chunk&, const Place&)>& f) const;

  const std::vector<at::Tensor> tiles_;
  const c10::Device device_;
  const bool brings_tiles_;  // the tiles lie on the host
  const int64_t states_per_tile_;
  const std::optional<at::ScalarType> state_type_;
  std::vector<Chunk> chunks_;
  std::vector<Buffer> buffers_;
  const c10::Stream to_device_, to_host_;  // two streams, as a link copies both ways at once
};

}  // namespace tessera::optim
