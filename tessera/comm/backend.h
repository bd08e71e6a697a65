// What a transport must offer: six blocking operations on bytes, and shared memory where it has some.
// Everything else is built on them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace tessera::comm::detail {

// Called from one thread at a time. Every operation is collective over the group, except send and recv.
// Failures are thrown as Error(Peer).
class Backend {
 public:
  virtual ~Backend() = default;
  virtual int64_t rank() const = 0;
  virtual int64_t size() const = 0;
  virtual std::string name() const = 0;

  // num_bytes: of every rank's piece, the same on all ranks. output holds them in the order of the ranks;
  // input is this rank's, and may be its own place in output.
  virtual void all_gather(void* output, const void* input, const std::vector<int64_t>& num_bytes) = 0;
  // input and output: size() * num_bytes each; piece i goes to rank i, and comes from rank i.
  virtual void all_to_all(void* output, const void* input, int64_t num_bytes) = 0;
  virtual void broadcast(void* data, int64_t num_bytes, int64_t root) = 0;
  virtual void barrier() = 0;
  virtual void send(const void* data, int64_t num_bytes, int64_t destination, int tag) = 0;
  virtual void recv(void* data, int64_t num_bytes, int64_t source, int tag) = 0;

  // `num_bytes` of memory that every rank of the group maps: page-aligned, zeros at first. Null, on every
  // rank alike, where the ranks do not run on one machine or the machine refuses. Collective; but each rank
  // lets go of the memory by itself, with its last copy of the pointer.
  virtual std::shared_ptr<char> map_shared(int64_t num_bytes) = 0;

  // The group of the ranks that gave the same color, ordered by key, then by rank.
  virtual std::unique_ptr<Backend> split(int64_t color, int64_t key) = 0;
};

}  // namespace tessera::comm::detail
