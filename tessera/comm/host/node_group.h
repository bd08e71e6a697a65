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

// [Note: node collectives] Every rank has a segment of the shared memory, in two halves. A message goes
// through in chunks that fit a half, so the memory is small (and stays in the cache) however long the message
// is: a rank writes its chunk into its half, meets the others, and reads their chunks where they lie. Sums
// are taken in the order of the ranks.
//
// Chunks take the halves in turn, from one operation to the next, too. So one meeting for each chunk is
// enough: before a rank writes a half again it has met the others at the chunk in between, to which they came
// only after their last read of this half.
//
// Each rank publishes which operation it is in before it first meets the others, and throws Error(Peer) if
// theirs differ. A rank that fails within an operation makes the others throw (NodeBarrier::give_up()).
class NodeGroup {
 public:
  // The size of half a segment: 4 MB for up to 4 ranks, 1 MB for 16 and more. The memory that all ranks map
  // thus stays within 32 MB for up to 16 ranks; with smaller chunks, ranks would mostly wait for each other.
  static int64_t chunk_bytes(int64_t num_ranks);

  // Collective. Gives null, on every rank alike, if the transport's ranks share no memory. `transport` must
  // outlive the group.
  static std::unique_ptr<NodeGroup> create(Transport& transport);

  void barrier();
  // Gathers pieces as ByteExchange::all_gather() does.
  void all_gather(void* output, const void* input, const std::vector<int64_t>& num_bytes);
  // Exchanges pieces: output_counts[i] elements of `element_bytes` come from rank i, and input_counts[i] go
  // to it. Throws Error(Peer) on every rank if the counts of two ranks do not agree.
  void all_to_all(void* output, const void* input, const std::vector<int64_t>& output_counts,
                  const std::vector<int64_t>& input_counts, int64_t element_bytes);
  void broadcast(void* data, int64_t num_bytes, int64_t root);
  // Reduces as Communicator::reduce_scatter_parts() does. The input of a part is read in place and cast on
  // its way.
  void reduce_scatter(const std::vector<ScatterPart>& parts, at::ScalarType type, ReduceOp op);
  void all_reduce(const at::Tensor& tensor, ReduceOp op);
  // Meets the others, runs `write`, and meets them again. `what` and `num_bytes` must be equal on all ranks.
  void write(const std::string& what, int64_t num_bytes, const std::function<void()>& write);
  // Maps more memory for the group; see Transport::map_shared().
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
  // The operation that a rank publishes.
  struct Call {
    Kind kind;
    int64_t num_bytes;
    int64_t detail;  // the root, the type and ReduceOp, or a hash of the pieces or of a text
    bool operator==(const Call&) const = default;
  };
  static constexpr size_t kCallBytes = 64;
  static const char* name(Kind kind);

  NodeGroup(Transport& transport, std::shared_ptr<char> memory);
  static int64_t header_bytes(int64_t num_ranks);
  Call& published_call(int64_t rank) const;
  // The half of rank `rank`'s segment in which the current chunk goes.
  char* segment(int64_t rank) const;
  // The part of rank `source`'s half, place_bytes() long, in which it puts what goes to rank `target`.
  char* place(int64_t source, int64_t target) const { return segment(source) + target * place_bytes(); }
  int64_t place_bytes() const;
  void next_chunk() { half_ = 1 - half_; }
  // Meets the other ranks. The first meeting of an operation then compares the published calls.
  void meet();
  // Runs an operation: publishes `call`, runs `body`, and makes the other ranks throw if that fails here.
  void run(const Call& call, const std::function<void()>& body);

  Transport& transport_;
  const int64_t rank_, size_, chunk_bytes_;
  std::shared_ptr<char> memory_;
  NodeBarrier* barrier_;
  char* segments_;
  int half_ = 0;
  int call_side_ = 0;  // which of the two places for published calls is in use: they take turns too
  bool is_call_unchecked_ = false;  // the next meeting compares the calls
  bool is_broken_ = false;          // an operation has failed: no other one can run
};

}  // namespace tessera::comm::detail
