// The collectives on bytes that reductions are built on.
#pragma once

#include <cstdint>
#include <vector>

namespace tessera::comm::detail {

// The byte collectives of one group of ranks. Calls run in one order, which is the same on all ranks. On the
// host an operation is over when its call returns; on a device it has been put on the current stream.
// Failures are thrown as Error(Peer).
class ByteExchange {
 public:
  virtual ~ByteExchange() = default;
  virtual int64_t rank() const = 0;
  virtual int64_t size() const = 0;

  // Gathers every rank's `input` into `output`, in the order of the ranks. `num_bytes` holds the length of
  // each rank's piece and is the same on all ranks. `input` may be this rank's place in `output`.
  virtual void all_gather(void* output, const void* input, const std::vector<int64_t>& num_bytes) = 0;
  // `input` and `output` hold size() pieces of `num_bytes` each. Piece i of `input` goes to rank i, and piece
  // i of `output` comes from rank i.
  virtual void all_to_all(void* output, const void* input, int64_t num_bytes) = 0;
  // Exchanges pieces of any lengths: output_bytes[i] bytes come from rank i, and input_bytes[i] go to it. The
  // two ranks of a piece must name the same length for it.
  virtual void all_to_all_v(void* output, const void* input, const std::vector<int64_t>& output_bytes,
                            const std::vector<int64_t>& input_bytes) = 0;
  virtual void broadcast(void* data, int64_t num_bytes, int64_t root) = 0;
};

}  // namespace tessera::comm::detail
