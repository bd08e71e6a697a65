// The engines that move ranges of a spill file to and from memory beside the caller: io_uring, and threads.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace tessera::io {

// Offsets, sizes and addresses of ranges are multiples of so many bytes, as direct I/O needs them.
inline constexpr int64_t kSpillAlignment = 4096;

// The state of a transfer, which is cut into requests.
struct TransferState {
  int64_t num_open = 0;   // requests that have not ended
  int cause = 0;          // errno of the first request that failed; kEndOfFile where the file ended
  int64_t failed_at = 0;  // the byte of the file where it failed
  bool is_write = false;
  static constexpr int kEndOfFile = -1;
};

// A range of the file and the memory that it is read into or written from.
struct TransferRequest {
  int64_t offset = 0;
  char* data = nullptr;
  int64_t num_bytes = 0;
  std::shared_ptr<TransferState> transfer;
  int64_t num_stalls = 0;  // system calls that moved nothing
};

// Takes the result of a system call for a request: the bytes that it moved, or a negated errno. Returns
// whether the request goes on with what is left of it, as after a short transfer; else the state has the
// cause, if it failed. A range is continued at a multiple of kSpillAlignment, so that direct I/O takes it.
bool take_result(TransferRequest& request, int64_t result);

// Returns the name of an errno, such as "EPERM".
std::string error_name(int cause);

// Used by one thread.
class TransferEngine {
 public:
  // Waits for all requests, whose errors are lost.
  virtual ~TransferEngine() = default;
  // Queues a request, whose memory must stay until it has ended. `transfer->num_open` counts it already.
  virtual void start(const TransferRequest& request) = 0;
  // Returns when no request of the transfer is open.
  virtual void wait(const TransferState& transfer) = 0;
  virtual bool has_ended(const TransferState& transfer) = 0;
  // Describes the engine for the user: "io_uring with registered buffers".
  virtual std::string text() const = 0;
};

// The file of an engine. The descriptor stays the caller's.
struct EngineFile {
  int descriptor = -1;
  std::string path;  // for messages and hooks
};

// Makes an engine that keeps `depth` requests in flight in an io_uring. `buffers` are registered with the
// kernel where that lets it (it counts them as locked memory). Returns null where the kernel refuses
// io_uring, with the reason in `why_not`: "EPERM".
std::unique_ptr<TransferEngine> make_ring_engine(const EngineFile& file, int64_t depth,
                                                 const std::vector<std::span<char>>& buffers,
                                                 std::string& why_not);
// Makes an engine of `depth` threads, each of which reads and writes one request after another.
std::unique_ptr<TransferEngine> make_thread_engine(const EngineFile& file, int64_t depth);

}  // namespace tessera::io
