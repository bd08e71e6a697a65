// Memory that several processes of one machine map.
#pragma once

#include <cstdint>
#include <memory>

namespace tessera::comm::detail {

// [Note: why no MPI window] MPI_Win_allocate_shared takes its memory from /dev/shm, which containers keep at
// 64 MB, and frees it by a collective call, which a rank that ends on an error must not wait for. An
// anonymous file of the kernel (memfd) has neither limit, and leaves nothing behind when a process is killed.
// Its peers open it through /proc.

// What a peer must know to open the file.
struct SharedFileOffer {
  int64_t process = 0;
  int64_t file = -1;  // -1: there is none
  int64_t token = 0;  // written in the file: shows that it is the one
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

  // Zeros at first; unmapped with the last copy.
  const std::shared_ptr<char>& memory() const { return memory_; }

 private:
  void map(int64_t num_bytes);
  int file_ = -1;
  std::shared_ptr<char> memory_;
};

}  // namespace tessera::comm::detail
