// Collectives of ranks that share a machine, through memory that all of them map.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "tessera/comm/host/transport.h"
#include "tessera/comm/options.h"
#include "tessera/comm/scatter_part.h"

namespace tessera::comm::detail {

class NodeBarrier;

// [Note: node collectives]
// Every rank has a segment of the shared memory, of two halves. A message goes through in chunks that fit a
// half, so the memory is small (and stays in the cache) however long the message is: a rank writes its chunk
// into its half, meets the others, and reads their chunks where they lie. Chunks take the halves in turn, and
// no rank writes a half again before it met the others after their last read of it. Sums are taken in the
// order of the ranks. Each rank publishes which operation it is in before it first meets the others, and
// throws Error(Peer) when theirs differ. A rank that fails within an operation lets the others know.
class NodeGroup {
 public:
  // The size of half a segment: 4 MB for up to 4 ranks, 1 MB for 16 and more, so that what all ranks map
  // stays within 32 MB as long as chunks are not so small that ranks mostly wait for each other.
  static int64_t chunk_bytes(int64_t num_ranks);

  // Collective; null on every rank where the transport's ranks share no memory. `transport` must outlive it.
  static std::unique_ptr<NodeGroup> create(Transport& transport);

  void barrier();
  // As in Transport.
  void all_gather(void* output, const void* input, const std::vector<int64_t>& num_bytes);
  // Counts in elements of `element_bytes`, from each rank and to each. Throws Error(Peer) on every rank where
  // two do not agree.
  void all_to_all(void* output, const void* input, const std::vector<int64_t>& output_counts,
                  const std::vector<int64_t>& input_counts, int64_t element_bytes);
  void broadcast(void* data, int64_t num_bytes, int64_t root);
  // As in Communicator; the input of a part is read in place and cast on its way.
  void reduce_scatter(const std::vector<ScatterPart>& parts, at::ScalarType type, ReduceOp op);
  void all_reduce(const at::Tensor& tensor, ReduceOp op);
  // Meets, writes, meets. `what` and `num_bytes` must be equal on all ranks.
  void write(const std::string& what, int64_t num_bytes, const std::function<void()>& write);
  // More memory of the same kind.
  std::shared_ptr<char> map_shared(int64_t num_bytes) { return transport_.map_shared(num_bytes); }

 private:
  enum class Kind : int64_t {
    None,
    Barrier,
    AllGather,
    AllToAll,
    Broadcast,
    ReduceScatter,
    AllReduce,
    Write
  };
  // What a rank says it does.
  struct Call {
    Kind kind;
    int64_t num_bytes;
    int64_t detail;  // root, type and operation, or a hash (of pieces, a text)
    bool operator==(const Call&) const = default;
  };
  static constexpr size_t kCallBytes = 64;
  static const char* name(Kind kind);

  NodeGroup(Transport& transport, std::shared_ptr<char> memory);
  static int64_t header_bytes(int64_t num_ranks);
  Call& published_call(int64_t rank) const;
  // Rank `rank`'s half of the current chunk.
  char* segment(int64_t rank) const;
  // Where rank `source` puts what goes to rank `target`: a part of its half, of place_bytes().
  char* place(int64_t source, int64_t target) const { return segment(source) + target * place_bytes(); }
  int64_t place_bytes() const;
  void next_chunk() { half_ = 1 - half_; }
  void meet();
  // Runs an operation: publishes it, and tells the others when it fails here.
  void run(const Call& call, const std::function<void()>& body);

  Transport& transport_;
  const int64_t rank_, size_, chunk_bytes_;
  std::shared_ptr<char> memory_;
  NodeBarrier* barrier_;
  char* segments_;
  int half_ = 0;
  int call_side_ = 0;  // calls take two places in turn too
  bool is_call_unchecked_ = false;
  bool is_broken_ = false;
};

}  // namespace tessera::comm::detail
