#include "tessera/comm/host/node_group.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <string_view>

#include <ATen/ATen.h>

#include "tessera/comm/combine.h"
#include "tessera/comm/exchange_table.h"
#include "tessera/comm/host/node_barrier.h"
#include "tessera/core/error.h"
#include "tessera/core/round_up.h"

namespace tessera::comm::detail {
namespace {

constexpr int64_t kLine = 64, kPage = 4096;

int64_t type_and_op(at::ScalarType type, ReduceOp op) {
  return static_cast<int64_t>(type) * 8 + static_cast<int64_t>(op);
}

int64_t hash_of(const std::vector<int64_t>& numbers) {
  const std::string_view bytes(reinterpret_cast<const char*>(numbers.data()),
                               numbers.size() * sizeof(int64_t));
  return static_cast<int64_t>(std::hash<std::string_view>{}(bytes));
}

at::Tensor view_of(const void* data, int64_t count, at::ScalarType type) {
  return at::from_blob(const_cast<void*>(data), {count}, at::TensorOptions().dtype(type));
}

// [Note: rows of pieces] A reduce-scatter puts the pieces of all parts for a rank behind each other in a
// virtual row, each with room for the longest piece of its part. So rows are equally long for all ranks, and
// are cut into the same chunks. An Overlap is the stretch that a chunk and one part have in common.
struct Overlap {
  size_t part;
  int64_t piece_begin;  // its begin in the part's piece
  int64_t row_begin;    // its begin in the chunk
  int64_t size;
};

// Gives the overlaps of all parts with the chunk [begin, begin + size) of the row; see [Note: rows of
// pieces].
std::vector<Overlap> overlaps(const std::vector<ScatterPart>& parts, int64_t begin, int64_t size) {
  std::vector<Overlap> found;
  int64_t part_begin = 0;
  for (size_t p = 0; p < parts.size(); ++p) {
    const int64_t from = std::max(begin, part_begin);
    const int64_t to = std::min(begin + size, part_begin + parts[p].longest_piece());
    if (from < to) found.push_back({p, from - part_begin, from - begin, to - from});
    part_begin += parts[p].longest_piece();
  }
  return found;
}

}  // namespace

const char* NodeGroup::name(Kind kind) {
  switch (kind) {
    case Kind::None: return "nothing";
    case Kind::Barrier: return "a barrier";
    case Kind::AllGather: return "an all-gather";
    case Kind::AllToAll: return "an all-to-all";
    case Kind::Broadcast: return "a broadcast";
    case Kind::ReduceScatter: return "a reduce-scatter";
    case Kind::AllReduce: return "an all-reduce";
    case Kind::Write: return "a write to shared memory";
  }
  return "?";
}

int64_t NodeGroup::header_bytes(int64_t num_ranks) {
  return round_up<int64_t>(
      round_up<int64_t>(sizeof(NodeBarrier), kLine) + 2 * num_ranks * static_cast<int64_t>(kCallBytes),
      kPage);
}

int64_t NodeGroup::chunk_bytes(int64_t num_ranks) {
  constexpr int64_t kMegabyte = int64_t{1} << 20;
  return std::clamp<int64_t>(16 / num_ranks, 1, 4) * kMegabyte;
}

std::unique_ptr<NodeGroup> NodeGroup::create(Transport& transport) {
  auto memory = transport.map_shared(header_bytes(transport.size()) +
                                     transport.size() * 2 * chunk_bytes(transport.size()));
  if (memory == nullptr) return nullptr;
  return std::unique_ptr<NodeGroup>(new NodeGroup(transport, std::move(memory)));
}

NodeGroup::NodeGroup(Transport& transport, std::shared_ptr<char> memory)
    : transport_(transport),
      rank_(transport.rank()),
      size_(transport.size()),
      chunk_bytes_(chunk_bytes(transport.size())),
      memory_(std::move(memory)),
      // The barrier is not constructed: the memory is zeros, which is its first state, and other ranks may be
      // in it already.
      barrier_(reinterpret_cast<NodeBarrier*>(memory_.get())),
      segments_(memory_.get() + header_bytes(size_)) {
  static_assert(sizeof(Call) <= kCallBytes);
}

NodeGroup::Call& NodeGroup::published_call(int64_t rank) const {
  char* calls = memory_.get() + round_up<int64_t>(sizeof(NodeBarrier), kLine);
  return *reinterpret_cast<Call*>(calls + (call_side_ * size_ + rank) * static_cast<int64_t>(kCallBytes));
}

int64_t NodeGroup::place_bytes() const { return chunk_bytes_ / size_ / kLine * kLine; }

char* NodeGroup::segment(int64_t rank) const { return segments_ + (2 * rank + half_) * chunk_bytes_; }

void NodeGroup::meet() {
  barrier_->meet(size_);
  if (!is_call_unchecked_) return;
  is_call_unchecked_ = false;
  const Call& own = published_call(rank_);
  for (int64_t r = 0; r < size_; ++r) {
    const Call& other = published_call(r);
    if (other == own) continue;
    const auto text = [](const Call& call) {
      return name(call.kind) +
             (call.num_bytes > 0 ? " of " + std::to_string(call.num_bytes) + " bytes" : std::string());
    };
    // Every rank sees a difference after this meeting, so none need be told by give_up().
    is_broken_ = true;
    throw Error(ErrorKind::Peer, "MISMATCH", "the ranks of a group are in different collectives")
        .got(text(own) + " on rank " + std::to_string(rank_) + ", " + text(other) + " on rank " +
             std::to_string(r) +
             (own.kind == other.kind ? " (with other pieces, another type or operation)" : ""))
        .need("the same calls in the same order");
  }
}

void NodeGroup::run(const Call& call, const std::function<void()>& body) {
  if (is_broken_) throw Error(ErrorKind::Peer, "BROKEN", "a collective of this group has failed before");
  // Other ranks may still compare the calls of the last operation. This call takes the other place, which
  // held the call before that one: all ranks have left that operation, since they have come to the last one's
  // first meeting.
  call_side_ = 1 - call_side_;
  published_call(rank_) = call;
  is_call_unchecked_ = true;
  try {
    body();
  } catch (...) {
    if (!is_broken_) barrier_->give_up(rank_);
    is_broken_ = true;
    throw;
  }
}

void NodeGroup::barrier() {
  run({Kind::Barrier, 0, 0}, [&] { meet(); });
}

void NodeGroup::all_gather(void* output, const void* input, const std::vector<int64_t>& num_bytes) {
  std::vector<char*> targets;
  char* end = static_cast<char*>(output);
  for (const int64_t bytes : num_bytes) {
    targets.push_back(end);
    end += bytes;
  }
  const int64_t longest = *std::max_element(num_bytes.begin(), num_bytes.end());
  const char* const source = static_cast<const char*>(input);
  run({Kind::AllGather, end - static_cast<char*>(output), hash_of(num_bytes)}, [&] {
    // The loop runs once even if there is nothing to gather: calls are compared at a meeting, which every
    // operation must have.
    int64_t begin = 0;
    const auto size_of = [&](int64_t rank) {
      return static_cast<size_t>(std::clamp<int64_t>(num_bytes[rank] - begin, 0, chunk_bytes_));
    };
    do {
      next_chunk();
      const size_t size = size_of(rank_);
      if (size > 0) std::memcpy(segment(rank_), source + begin, size);
      meet();
      for (int64_t i = 1; i < size_; ++i) {
        // Each rank begins with the one after it, so that not all of them read one segment at once.
        const int64_t peer = (rank_ + i) % size_;
        if (size_of(peer) > 0) std::memcpy(targets[peer] + begin, segment(peer), size_of(peer));
      }
      char* const own = targets[rank_] + begin;
      if (own != source + begin && size > 0) std::memmove(own, source + begin, size);
      begin += chunk_bytes_;
    } while (begin < longest);
  });
}

void NodeGroup::all_to_all(void* output, const void* input, const std::vector<int64_t>& output_counts,
                           const std::vector<int64_t>& input_counts, int64_t element_bytes) {
  std::vector<char*> targets;
  std::vector<const char*> sources;
  char* target = static_cast<char*>(output);
  const char* source = static_cast<const char*>(input);
  for (int64_t r = 0; r < size_; ++r) {
    targets.push_back(target);
    target += output_counts[r] * element_bytes;
    sources.push_back(source);
    source += input_counts[r] * element_bytes;
  }
  run({Kind::AllToAll, 0, element_bytes}, [&] {
    // The first chunk carries each rank's counts: all ranks then know the longest piece, and so how many
    // chunks follow. In these each half has a place for every target.
    const std::vector<int64_t> row = exchange_row(output_counts, input_counts);
    const auto row_bytes = static_cast<int64_t>(row.size() * sizeof(int64_t));
    TESSERA_ASSERT(row_bytes <= chunk_bytes_ && place_bytes() > 0, "too many ranks on one machine");
    next_chunk();
    std::memcpy(segment(rank_), row.data(), row_bytes);
    meet();
    std::vector<int64_t> rows(row.size() * size_);
    for (int64_t r = 0; r < size_; ++r) std::memcpy(rows.data() + r * row.size(), segment(r), row_bytes);
    int64_t longest = 0;
    try {
      longest = ExchangeTable(std::move(rows), size_).longest() * element_bytes;
    } catch (const Error&) {
      is_broken_ = true;  // every rank sees it, so nobody need be told
      throw;
    }
    for (int64_t begin = 0; begin < longest; begin += place_bytes()) {
      const auto size_of = [&](int64_t count) {
        return static_cast<size_t>(std::clamp<int64_t>(count * element_bytes - begin, 0, place_bytes()));
      };
      next_chunk();
      for (int64_t i = 1; i < size_; ++i) {
        const int64_t peer = (rank_ + i) % size_;
        const size_t size = size_of(input_counts[peer]);
        if (size > 0) std::memcpy(place(rank_, peer), sources[peer] + begin, size);
      }
      meet();
      for (int64_t i = 0; i < size_; ++i) {
        const int64_t peer = (rank_ + i) % size_;
        const size_t size = size_of(output_counts[peer]);
        const char* const from = peer == rank_ ? sources[rank_] + begin : place(peer, rank_);
        if (size > 0) std::memcpy(targets[peer] + begin, from, size);
      }
    }
  });
}

void NodeGroup::broadcast(void* data, int64_t num_bytes, int64_t root) {
  run({Kind::Broadcast, num_bytes, root}, [&] {
    char* const bytes = static_cast<char*>(data);
    int64_t begin = 0;
    do {
      const auto size = static_cast<size_t>(std::min(chunk_bytes_, num_bytes - begin));
      next_chunk();
      if (rank_ == root && size > 0) std::memcpy(segment(root), bytes + begin, size);
      meet();
      if (rank_ != root && size > 0) std::memcpy(bytes + begin, segment(root), size);
      begin += chunk_bytes_;
    } while (begin < num_bytes);
  });
}

void NodeGroup::reduce_scatter(const std::vector<ScatterPart>& parts, at::ScalarType type, ReduceOp op) {
  const at::NoGradGuard no_grad;
  const auto element = static_cast<int64_t>(c10::elementSize(type));
  int64_t row = 0;
  for (const ScatterPart& part : parts) row += part.longest_piece();
  const int64_t chunk = place_bytes() / element;
  // Sets `source` to the elements of this rank's input that lie in the overlap with the piece of `target`;
  // false if there are none.
  const auto source_of = [&](const Overlap& overlap, int64_t target, at::Tensor& source) {
    const ScatterPart& part = parts[overlap.part];
    const ElementRange& piece = part.pieces[target];
    const int64_t size = std::min(overlap.size, piece.count - overlap.piece_begin);
    if (size <= 0) return false;
    if (part.input.defined()) {
      const auto input_element = static_cast<int64_t>(part.input.element_size());
      source = view_of(static_cast<const char*>(part.input.const_data_ptr()) +
                           (piece.begin + overlap.piece_begin) * input_element,
                       size, part.input.scalar_type());
    } else {
      source = at::zeros({size}, at::TensorOptions().dtype(type));
    }
    return true;
  };

  std::vector<int64_t> cut = {type_and_op(type, op)};
  for (const ScatterPart& part : parts) {
    for (const ElementRange& piece : part.pieces) cut.insert(cut.end(), {piece.begin, piece.count});
  }
  run({Kind::ReduceScatter, row * element, hash_of(cut)}, [&] {
    TESSERA_ASSERT(chunk > 0, "too many ranks on one machine");
    int64_t begin = 0;
    do {
      // A place holds one chunk of the row for its target; copy_() casts the elements to `type`.
      const auto found = overlaps(parts, begin, std::min(chunk, row - begin));
      next_chunk();
      at::Tensor source;
      for (int64_t i = 1; i < size_; ++i) {
        const int64_t peer = (rank_ + i) % size_;
        for (const Overlap& overlap : found) {
          if (!source_of(overlap, peer, source)) continue;
          view_of(place(rank_, peer) + overlap.row_begin * element, source.numel(), type).copy_(source);
        }
      }
      meet();
      for (const Overlap& overlap : found) {
        if (!source_of(overlap, rank_, source)) continue;
        std::vector<at::Tensor> pieces;
        for (int64_t r = 0; r < size_; ++r) {
          pieces.push_back(
              r == rank_ ? source.to(type)
                         : view_of(place(r, rank_) + overlap.row_begin * element, source.numel(), type));
        }
        combine(parts[overlap.part].output.view(-1).narrow(0, overlap.piece_begin, source.numel()), pieces,
                op);
      }
      begin += chunk;
    } while (begin < row);
  });
}

void NodeGroup::all_reduce(const at::Tensor& tensor, ReduceOp op) {
  const at::NoGradGuard no_grad;
  const at::ScalarType type = tensor.scalar_type();
  const auto element = static_cast<int64_t>(tensor.element_size());
  const at::Tensor flat = tensor.view(-1);
  const int64_t chunk = chunk_bytes_ / element;
  // Up to this size every rank sums all elements by itself, which saves a meeting.
  constexpr int64_t kSmallBytes = 32 * 1024;
  run({Kind::AllReduce, flat.numel() * element, type_and_op(type, op)}, [&] {
    int64_t begin = 0;
    do {
      const int64_t size = std::min(chunk, flat.numel() - begin);
      const at::Tensor part = flat.narrow(0, begin, size);
      next_chunk();
      const auto chunk_of = [&](int64_t rank) { return view_of(segment(rank), size, type); };
      if (size > 0) chunk_of(rank_).copy_(part);
      meet();
      // Gives the begin and the number of the elements that rank `rank` sums.
      const int64_t share = size * element <= kSmallBytes ? size : (size + size_ - 1) / size_;
      const auto share_of = [&](int64_t rank) {
        const int64_t from = share == size ? 0 : std::min(size, rank * share);
        return std::pair(from, std::min(size, from + share) - from);
      };
      const auto [from, count] = share_of(rank_);
      if (count > 0) {
        std::vector<at::Tensor> pieces;
        for (int64_t r = 0; r < size_; ++r) pieces.push_back(chunk_of(r).narrow(0, from, count));
        combine(part.narrow(0, from, count), pieces, op);
      }
      if (share < size) {
        // The sum takes the place of this rank's own elements of its share. Before the next meeting the other
        // ranks read only their own shares of this segment, and after it only this one.
        if (count > 0) chunk_of(rank_).narrow(0, from, count).copy_(part.narrow(0, from, count));
        meet();
        for (int64_t i = 1; i < size_; ++i) {
          const int64_t peer = (rank_ + i) % size_;
          const auto [peer_from, peer_count] = share_of(peer);
          if (peer_count == 0) continue;
          part.narrow(0, peer_from, peer_count).copy_(chunk_of(peer).narrow(0, peer_from, peer_count));
        }
      }
      begin += chunk;
    } while (begin < flat.numel());
  });
}

void NodeGroup::write(const std::string& what, int64_t num_bytes, const std::function<void()>& write) {
  const auto hash = static_cast<int64_t>(std::hash<std::string>{}(what));
  run({Kind::Write, num_bytes, hash}, [&] {
    meet();
    // The first meeting shows that all ranks have finished reading what `write` overwrites, the second one
    // that all have written.
    write();
    meet();
  });
}

}  // namespace tessera::comm::detail
