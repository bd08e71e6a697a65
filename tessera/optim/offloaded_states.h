// Optimizer states that lie on the host, while a device updates them: alone, or with the tiles that they
// belong to.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>

#include "tessera/core/device_event.h"

namespace tessera::optim {

// Consecutive elements of a tile, with their states on the device.
struct StatePiece {
  size_t tile = 0;                 // its place in the list
  int64_t begin = 0, size = 0;     // elements of the flat tile
  at::Tensor values;               // [size]
  std::vector<at::Tensor> states;  // [size] each

  // The same elements of a tensor of the tile's shape.
  at::Tensor of(const at::Tensor& x) const { return x.reshape({-1}).narrow(0, begin, size); }
};

// So many values for every element of the tiles, zero at first, in pinned memory of the host: in chunks that
// hold the elements of tiles one after the other. update() has each chunk on the device for a while, in two
// buffers in turn, and with it the elements of tiles that lie in pinned memory themselves. While one chunk is
// updated, the next one comes and the last one goes, on streams of their own; the host waits for nothing
// before the values are asked for. Every element is updated as it would be in one piece with its tile.
class OffloadedStates {
 public:
  // 16 MiB of float32 a state: enough to copy at full speed, and a power of two, as pinned memory is rounded.
  static constexpr int64_t kChunkElements = int64_t{1} << 22;

  // The tiles are dense and lie all on `device`, which has streams, or all in pinned memory.
  // chunk_elements: of each state. state_type: of the states, by default their tile's. Throws Error(Memory)
  // where the host has no room for all states.
  OffloadedStates(const std::vector<at::Tensor>& tiles, c10::Device device, int64_t states_per_tile,
                  int64_t chunk_elements = kChunkElements,
                  std::optional<at::ScalarType> state_type = std::nullopt);
  ~OffloadedStates();
  OffloadedStates(const OffloadedStates&) = delete;
  OffloadedStates& operator=(const OffloadedStates&) = delete;

  // Calls `run` for one chunk after the other with those pieces of it whose tile is wanted, to change their
  // values and states on the current stream. What other tiles have stays as it is. Tiles of the host have
  // their values for what the current stream runs next.
  void update(const std::vector<bool>& is_wanted,
              const std::function<void(const std::vector<StatePiece>& pieces)>& run);

  // A state of a tile, in the tile's shape, on the host: this object's memory where the tile is in one chunk,
  // else a copy. The host waits until it is there.
  at::Tensor get(size_t tile, int64_t state) const;
  void set(size_t tile, int64_t state, const at::Tensor& values);

 private:
  // Pieces begin where any type is aligned for the widest access of a device.
  static constexpr int64_t kAlignment = 64;

  struct Place {
    size_t tile;
    int64_t begin, size;  // of the tile
    int64_t offset;       // in each row of the chunk
  };
  struct Chunk {
    explicit Chunk(c10::Device device) : is_home(device) {}
    at::Tensor host;  // [states, elements]
    std::vector<Place> places;
    DeviceEvent is_home;  // what came back last
  };
  struct Buffer {
    Buffer(at::Tensor memory, c10::Device device)
        : bytes(std::move(memory)), is_free(device), is_here(device), is_updated(device) {}
    at::Tensor bytes;
    DeviceEvent is_free, is_here, is_updated;
  };

  void deal(int64_t chunk_elements);
  void allocate_buffers();
  at::ScalarType state_type_of(size_t tile) const { return state_type_.value_or(tiles_[tile].scalar_type()); }
  // What lies in a buffer: the states as in chunk.host, and behind them the values of tiles that lie on the
  // host, [elements].
  static at::Tensor states_in(const Chunk& chunk, const Buffer& buffer);
  at::Tensor values_in(const Chunk& chunk, const Buffer& buffer) const;
  int64_t num_buffer_bytes(const Chunk& chunk) const;
  // Calls f(on the host, on the device) for what goes there and back.
  void for_each_copy(const Chunk& chunk, const Buffer& buffer,
                     const std::function<void(const at::Tensor&, const at::Tensor&)>& f) const;
  void bring(const Chunk& chunk, Buffer& buffer) const;
  void take_home(Chunk& chunk, Buffer& buffer) const;
  // Calls f(chunk, place) for what the tile has, in order.
  void for_each_place(size_t tile, const std::function<void(const Chunk&, const Place&)>& f) const;

  const std::vector<at::Tensor> tiles_;
  const c10::Device device_;
  const bool brings_tiles_;  // they lie on the host
  const int64_t states_per_tile_;
  const std::optional<at::ScalarType> state_type_;
  std::vector<Chunk> chunks_;
  std::vector<Buffer> buffers_;
  const c10::Stream to_device_, to_host_;  // a link carries both ways at once
};

}  // namespace tessera::optim
