// Memory that several processes of one machine map.
#pragma once

#include <cstdint>
#include <memory>

namespace tessera::comm::detail {

// [Note: why no MPI window] MPI_Win_allocate_shared takes its memory from /dev/shm, which containers keep at
// 64 MB, and frees it by a collective call, which a rank that ends on an error must not wait for. An
// anonymous file of the kernel (memfd) has neither limit, and leaves nothing behind when a process is killed.
// Its peers open it through /proc.

// Tells a peer where the file is.
struct SharedFileOffer {
  int64_t process = 0;  // id of the process that has it open
  int64_t file = -1;    // its descriptor in that process; -1: there is no file
  int64_t token = 0;    // written in the file, so that a peer knows it has opened the right one
};

class SharedFile {
 public:
  SharedFile() = default;
  ~SharedFile();  // the memory stays mapped
  SharedFile(const SharedFile&) = delete;
  SharedFile& operator=(const SharedFile&) = delete;

  // Makes the file and maps it; memory() is null when the machine refuses. Keep the object until the peers
  // have opened it.
  SharedFileOffer create(int64_t num_bytes);
  // Maps the file of a peer; memory() is null when that cannot be done.
  void open(const SharedFileOffer& offer, int64_t num_bytes);

  // The mapped memory, zeros at first. It is unmapped with the last copy of the pointer.
  const std::shared_ptr<char>& memory() const { return memory_; }

 private:
  void map(int64_t num_bytes);
  int file_ = -1;
  std::shared_ptr<char> memory_;
};

}  // namespace tessera::comm::detail
