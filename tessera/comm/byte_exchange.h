// The collectives on bytes that reductions are built on.
#pragma once

#include <cstdint>
#include <vector>

namespace tessera::comm::detail {

// Of one group of ranks. A call takes its place in the order of execution, which is the same on all ranks: on
// the host it is over when it returns; on a device it is on the current stream. Failures are thrown as
// Error(Peer).
class ByteExchange {
 public:
  virtual ~ByteExchange() = default;
  virtual int64_t rank() const = 0;
  virtual int64_t size() const = 0;

  // num_bytes: of every rank's piece, the same on all ranks. output holds them in the order of the ranks;
  // input is this rank's, and may be its own place in output.
  virtual void all_gather(void* output, const void* input, const std::vector<int64_t>& num_bytes) = 0;
  // input and output: size() * num_bytes each; piece i goes to rank i, and comes from rank i.
  virtual void all_to_all(void* output, const void* input, int64_t num_bytes) = 0;
  // The same with pieces of other lengths: output_bytes from each rank, input_bytes to each. What a rank
  // sends is what its peer takes.
  virtual void all_to_all_v(void* output, const void* input, const std::vector<int64_t>& output_bytes,
                            const std::vector<int64_t>& input_bytes) = 0;
  virtual void broadcast(void* data, int64_t num_bytes, int64_t root) = 0;
};

}  // namespace tessera::comm::detail
