#include "tessera/optim/spilled_states.h"

#include <algorithm>
#include <utility>

#include <ATen/ATen.h>

#include "tessera/core/error.h"
#include "tessera/core/log.h"
#include "tessera/core/process_stats.h"
#include "tessera/core/round_up.h"
#include "tessera/core/strings.h"
#include "tessera/device/device.h"
#include "tessera/device/host_memory.h"
#include "tessera/io/file.h"

namespace tessera::optim {
namespace {

// States begin at multiples of so many bytes, where kernels read them at full speed.
constexpr int64_t kStateAlignment = 64;

// A piece of a tile has a multiple of so many elements, where a block holds as many.
constexpr int64_t kPieceElements = int64_t{1} << 14;

}  // namespace

// [Note: blocks in flight] A buffer is free, or it belongs to one block: that block is being read into it,
// the pass is at it, or it is being written back. `is_taken` says the first two; of the last one only the
// transfer tells, which whoever takes the buffer next waits for. A block may be read again only after it has
// been written. A pass reads each block once, and waits at its end for all that it has written: so nothing is
// being written when the next pass begins.
SpilledStates::SpilledStates(std::vector<SpilledTile> tiles, const SpillPlace& place)
    : tiles_(std::move(tiles)), block_bytes_(round_up(place.block_bytes, io::kSpillAlignment)) {
  TESSERA_ASSERT(place.buffer_count >= 2, "a buffer for the block that is updated and one for the next");
  deal(block_bytes_);
  int64_t num_bytes = 0, largest = 0;
  for (Block& block : blocks_) {
    block.offset = num_bytes;
    num_bytes += block.num_bytes;
    largest = std::max(largest, block.num_bytes);
  }
  std::vector<std::span<char>> memories;
  for (int64_t i = 0; i < std::min<int64_t>(place.buffer_count, std::ssize(blocks_)); ++i) {
    buffers_.push_back({io::AlignedMemory(std::min(largest, block_bytes_)), {}, false});
    memories.push_back(buffers_.back().memory.bytes());
  }
  if (largest > block_bytes_) buffers_.push_back({io::AlignedMemory(largest), {}, false});
  io::make_directories(place.folder);
  file_ = std::make_unique<io::SpillFile>(place.folder, num_bytes, place.file, memories);
  log::info("optimizer states lie on a drive, " + text());
}

SpilledStates::~SpilledStates() = default;

int64_t SpilledStates::num_bytes_of(size_t tile, int64_t elements) const {
  int64_t bytes = 0;
  for (const at::ScalarType type : tiles_[tile].types)
    bytes += round_up(elements * static_cast<int64_t>(c10::elementSize(type)), kStateAlignment);
  return bytes;
}

// Counts the elements of a tile that fit into a block; at least some, however small the block is.
int64_t SpilledStates::elements_in(size_t tile, int64_t block_bytes) const {
  int64_t of_one = 0;
  for (const at::ScalarType type : tiles_[tile].types) of_one += static_cast<int64_t>(c10::elementSize(type));
  const int64_t elements = block_bytes / std::max<int64_t>(1, of_one);
  const int64_t unit = elements >= kPieceElements ? kPieceElements : kStateAlignment;
  return std::max(kStateAlignment, elements / unit * unit);
}

void SpilledStates::deal(int64_t block_bytes) {
  for (size_t tile = 0; tile < tiles_.size(); ++tile) {
    const SpilledTile& own = tiles_[tile];
    const bool is_kept = own.numel > 0 && !own.types.empty();
    const size_t first = blocks_.size();
    const int64_t at_once = own.is_whole ? own.numel : std::min(own.numel, elements_in(tile, block_bytes));
    bool joins = is_kept && !blocks_.empty() &&
                 blocks_.back().num_bytes + num_bytes_of(tile, own.numel) <= block_bytes;
    const size_t first_of_tile = joins ? first - 1 : first;
    for (int64_t begin = 0; is_kept && begin < own.numel; begin += at_once, joins = false) {
      if (!joins) blocks_.emplace_back();
      Block& block = blocks_.back();
      Part part{tile, begin, std::min(at_once, own.numel - begin), {}};
      for (const at::ScalarType type : own.types) {
        part.offsets.push_back(block.num_bytes);
        block.num_bytes +=
            round_up(part.size * static_cast<int64_t>(c10::elementSize(type)), kStateAlignment);
      }
      block.parts.push_back(std::move(part));
    }
    blocks_of_tile_.emplace_back(first_of_tile, is_kept ? blocks_.size() : first_of_tile);
  }
  for (Block& block : blocks_) block.num_bytes = round_up(block.num_bytes, io::kSpillAlignment);
}

at::Tensor SpilledStates::state_in(const Part& part, size_t state, at::ScalarType type,
                                   const Buffer& buffer) {
  return at::from_blob(buffer.memory.bytes().data() + part.offsets[state], {part.size}, on_host(type));
}

SpilledStates::Buffer* SpilledStates::take_buffer(const Block& block, bool may_wait) {
  const bool has_large = !buffers_.empty() && std::ssize(buffers_.back().memory.bytes()) > block_bytes_;
  const size_t begin = is_large(block) ? buffers_.size() - 1 : 0,
               end = is_large(block) || !has_large ? buffers_.size() : buffers_.size() - 1;
  Buffer* busy = nullptr;
  for (size_t i = begin; i < end; ++i) {
    Buffer& buffer = buffers_[i];
    if (buffer.is_taken) continue;
    if (file_->has_ended(buffer.transfer)) {
      busy = &buffer;
      break;
    }
    if (busy == nullptr && may_wait) busy = &buffer;
  }
  if (busy == nullptr) return nullptr;
  wait(busy->transfer);
  busy->is_taken = true;
  return busy;
}

void SpilledStates::wait(io::Transfer& transfer) {
  const Timer timer;
  file_->wait(transfer);
  traffic_.wait_s += timer.seconds();
}

void SpilledStates::start_read(const Block& block, Buffer& buffer) {
  buffer.transfer =
      file_->start_read(block.offset, buffer.memory.bytes().first(static_cast<size_t>(block.num_bytes)));
  traffic_.bytes_read += block.num_bytes;
}

void SpilledStates::start_write(const Block& block, Buffer& buffer) {
  buffer.transfer =
      file_->start_write(block.offset, buffer.memory.bytes().first(static_cast<size_t>(block.num_bytes)));
  traffic_.bytes_written += block.num_bytes;
}

at::Tensor SpilledStates::get(size_t tile, size_t state) {
  const at::ScalarType type = tiles_[tile].types[state];
  at::Tensor values = at::empty({tiles_[tile].numel}, on_host(type));
  std::vector<bool> is_wanted(tiles_.size(), false);
  is_wanted[tile] = true;
  const StateTraffic before = traffic_;
  {
    SpilledPass pass(*this, is_wanted);
    pass.visit(
        tile,
        [&](const StatePiece& piece) {
          values.narrow(0, piece.begin, piece.size).copy_(piece.states[state]);
        },
        /*changes=*/false);
    pass.finish();
  }
  traffic_ = before;  // which is that of the updates
  return values;
}

void SpilledStates::set(size_t tile, size_t state, const at::Tensor& values) {
  const at::NoGradGuard no_grad;
  std::vector<bool> is_wanted(tiles_.size(), false);
  is_wanted[tile] = true;
  const StateTraffic before = traffic_;
  {
    SpilledPass pass(*this, is_wanted);
    pass.visit(tile, [&](const StatePiece& piece) { piece.states[state].copy_(piece.of(values)); });
    pass.finish();
  }
  traffic_ = before;
}

std::string SpilledStates::text() const {
  return format_bytes(file_->size()) + " in " + file_->folder() + ": " + file_->text();
}

SpilledPass::SpilledPass(SpilledStates& states, const std::vector<bool>& is_wanted) : states_(states) {
  for (size_t b = 0; b < states_.blocks_.size(); ++b) {
    if (std::ranges::any_of(states_.blocks_[b].parts,
                            [&](const SpilledStates::Part& part) { return is_wanted[part.tile]; }))
      wanted_.push_back(b);
  }
  read_ahead();
}

SpilledPass::~SpilledPass() {
  for (; begin_ < end_; ++begin_) {
    SpilledStates::Buffer& buffer = *buffers_[begin_];
    try {
      states_.wait(buffer.transfer);
    } catch (const std::exception&) {  // an error is under way already
    }
    buffer.is_taken = false;
  }
}

// Asks for the next blocks as long as there are buffers. One stays for the block that goes home.
void SpilledPass::read_ahead() {
  const size_t most = std::max<size_t>(2, states_.buffers_.size() - 1);
  while (end_ < wanted_.size() && end_ - begin_ < most) {
    const SpilledStates::Block& block = states_.blocks_[wanted_[end_]];
    SpilledStates::Buffer* const buffer = states_.take_buffer(block, /*may_wait=*/end_ == begin_);
    if (buffer == nullptr) return;
    states_.start_read(block, *buffer);
    buffers_.push_back(buffer);
    ++end_;
  }
}

// Writes the current block of the pass back to the file.
void SpilledPass::leave() {
  SpilledStates::Buffer& buffer = *buffers_[begin_];
  if (is_changed_) {
    states_.start_write(states_.blocks_[wanted_[begin_]], buffer);
  } else {
    states_.wait(buffer.transfer);
  }
  buffer.is_taken = is_here_ = is_changed_ = false;
  ++begin_;
}

void SpilledPass::move_to(size_t block) {
  while (true) {
    read_ahead();
    if (wanted_[begin_] == block) break;
    leave();
  }
  if (std::exchange(is_here_, true)) return;
  states_.wait(buffers_[begin_]->transfer);
}

void SpilledPass::visit(size_t tile, const std::function<void(const StatePiece& piece)>& run, bool changes) {
  const SpilledTile& own = states_.tiles_[tile];
  const auto [first, last] = states_.blocks_of_tile_[tile];
  for (size_t b = first; b < last; ++b) {
    move_to(b);
    for (const SpilledStates::Part& part : states_.blocks_[b].parts) {
      if (part.tile != tile) continue;
      StatePiece piece{tile, part.begin, part.size, {}, {}};
      std::vector<at::Tensor> on_drive;
      for (size_t s = 0; s < own.types.size(); ++s) {
        on_drive.push_back(SpilledStates::state_in(part, s, own.types[s], *buffers_[begin_]));
        piece.states.push_back(on_drive.back().to(own.device));
      }
      run(piece);
      is_changed_ = is_changed_ || changes;
      for (size_t s = 0; changes && s < on_drive.size(); ++s) {
        if (!piece.states[s].is_same(on_drive[s])) on_drive[s].copy_(piece.states[s]);
      }
    }
  }
}

void SpilledPass::finish() {
  while (begin_ < end_) leave();
  for (SpilledStates::Buffer& buffer : states_.buffers_) states_.wait(buffer.transfer);
  states_.traffic_.update_s += timer_.seconds();
}

checkpoint::StateTensor spilled_state(SpilledStates& states, size_t tile, size_t state, std::string name,
                                      parallel::Layout layout, std::vector<int64_t> coordinates) {
  const std::vector<int64_t> shape = layout.local_box(coordinates).size;
  return {std::move(name), std::move(layout), std::move(coordinates),
          [&states, tile, state, shape] { return states.get(tile, state).view(shape); },
          [&states, tile, state](const at::Tensor& values) { states.set(tile, state, values); }};
}

}  // namespace tessera::optim
