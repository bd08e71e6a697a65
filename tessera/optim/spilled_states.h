// Optimizer states that lie on a drive between updates.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "tessera/checkpoint/state_tensor.h"
#include "tessera/core/process_stats.h"
#include "tessera/io/spill_file.h"
#include "tessera/optim/offloaded_states.h"
#include "tessera/optim/optimizer.h"

namespace tessera::optim {

// The states of one tile: for each a value for every element.
struct SpilledTile {
  int64_t numel = 0;
  std::vector<at::ScalarType> types;  // of the states; none: nothing is kept
  c10::Device device;                 // where states are while the tile is updated
  bool is_whole = false;              // its states come in one piece, not in several
};

// Keeps states of tiles, zero at first, in a file that goes with the process (io::SpillFile). They lie there
// in blocks of at most SpillPlace::block_bytes, each of which holds consecutive elements of a tile, with all
// their states, or several small tiles; a tile whose states come in one piece may make a larger block. A pass
// (SpilledPass) reads one block after another into memory, the next ones ahead of their turn, and writes a
// block back when it has passed it. So memory is needed for SpillPlace::buffer_count blocks, and for the
// largest of the larger blocks.
class SpilledStates {
 public:
  // Throws Error(Storage) where the drive has no room for all states, and Error(Memory).
  SpilledStates(std::vector<SpilledTile> tiles, const SpillPlace& place);
  ~SpilledStates();
  SpilledStates(const SpilledStates&) = delete;
  SpilledStates& operator=(const SpilledStates&) = delete;

  // Returns state number `state` of a tile on the host, flat: a copy. set() overwrites it with `values`, of
  // any shape. No pass may be in progress. Throws Error(Storage).
  at::Tensor get(size_t tile, size_t state);
  void set(size_t tile, size_t state, const at::Tensor& values);

  const SpilledTile& tile(size_t index) const { return tiles_[index]; }
  // Describes the place of the states: "/nvme (io_uring ...)".
  std::string text() const;
  const StateTraffic& traffic() const { return traffic_; }

 private:
  friend class SpilledPass;
  // Elements of one tile in a block.
  struct Part {
    size_t tile;
    int64_t begin, size;           // elements of the flat tile
    std::vector<int64_t> offsets;  // of each of its states, in bytes from the begin of the block
  };
  struct Block {
    int64_t offset = 0, num_bytes = 0;  // in the file
    std::vector<Part> parts;
  };
  // Memory for a block, and the transfer that is under way from it or into it.
  struct Buffer {
    io::AlignedMemory memory;
    io::Transfer transfer;
    bool is_taken = false;  // by the block that a pass is at, or that it has asked for
  };

  void deal(int64_t block_bytes);
  int64_t num_bytes_of(size_t tile, int64_t elements) const;
  int64_t elements_in(size_t tile, int64_t block_bytes) const;
  // Returns a buffer for the block, once one is free; null if none is and `may_wait` is false.
  Buffer* take_buffer(const Block& block, bool may_wait);
  void wait(io::Transfer& transfer);
  void start_read(const Block& block, Buffer& buffer);
  void start_write(const Block& block, Buffer& buffer);
  static at::Tensor state_in(const Part& part, size_t state, at::ScalarType type, const Buffer& buffer);
  bool is_large(const Block& block) const { return block.num_bytes > block_bytes_; }

  const std::vector<SpilledTile> tiles_;
  const int64_t block_bytes_;
  std::vector<Block> blocks_;
  std::vector<std::pair<size_t, size_t>> blocks_of_tile_;  // [first, last) of each tile
  std::vector<Buffer> buffers_;  // the last one is that of the large blocks, where there are any
  std::unique_ptr<io::SpillFile> file_;
  StateTraffic traffic_;
};

// Goes through the states of some tiles once, in the order of the tiles.
class SpilledPass {
 public:
  // `is_wanted` says of each tile whether the pass comes to it. One pass at a time.
  SpilledPass(SpilledStates& states, const std::vector<bool>& is_wanted);
  // Waits for what is read ahead. A pass that was ended by an error leaves the states of some tiles as they
  // were, those of others changed.
  ~SpilledPass();
  SpilledPass(const SpilledPass&) = delete;
  SpilledPass& operator=(const SpilledPass&) = delete;

  // Calls `run` with the states of one piece of the tile after another, on the tile's device; the pieces have
  // no values. Tiles come in the order of their numbers; one may be left out. What `run` leaves in the states
  // goes to the drive unless `changes` says that it only reads them. Throws Error(Storage).
  void visit(size_t tile, const std::function<void(const StatePiece& piece)>& run, bool changes = true);
  // Sends the last block home. Throws Error(Storage) where an earlier one did not arrive.
  void finish();

 private:
  void move_to(size_t block);
  void read_ahead();
  void leave();

  SpilledStates& states_;
  std::vector<size_t> wanted_;  // blocks, in order
  // The pass is at the block wanted_[begin_], and has asked for those up to wanted_[end_ - 1].
  size_t begin_ = 0, end_ = 0;
  std::vector<SpilledStates::Buffer*> buffers_;  // of the wanted blocks that were asked for
  // The block that the pass is at has arrived, and has other states than the drive.
  bool is_here_ = false, is_changed_ = false;
  const Timer timer_;
};

// Returns state number `state` of a tile as a tensor of a checkpoint. `states` outlives it.
checkpoint::StateTensor spilled_state(SpilledStates& states, size_t tile, size_t state, std::string name,
                                      parallel::Layout layout, std::vector<int64_t> coordinates);

}  // namespace tessera::optim
