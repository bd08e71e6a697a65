// A file on a drive for what does not fit into memory while a process runs. It is no checkpoint: it has no
// name, and goes with the process.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tessera/io/transfer_engine.h"

namespace tessera::io {

// Memory at an address that direct I/O takes.
class AlignedMemory {
 public:
  AlignedMemory() = default;
  // Allocates at least `num_bytes`, rounded up to kSpillAlignment. Throws Error(Memory) where there is none.
  explicit AlignedMemory(int64_t num_bytes);
  ~AlignedMemory();
  AlignedMemory(AlignedMemory&& other) noexcept;
  AlignedMemory& operator=(AlignedMemory&& other) noexcept;
  AlignedMemory(const AlignedMemory&) = delete;
  AlignedMemory& operator=(const AlignedMemory&) = delete;

  std::span<char> bytes() const { return bytes_; }

 private:
  std::span<char> bytes_;
};

struct SpillOptions {
  // A transfer is cut into requests of so many bytes (a multiple of kSpillAlignment), of which so many are in
  // flight.
  int64_t request_bytes = int64_t{1} << 20, depth = 16;
  // May be turned off to measure and to test what the other way does.
  bool tries_ring = true, tries_direct = true;
};

// The handle of a transfer under way.
class Transfer {
 public:
  Transfer() = default;
  bool is_started() const { return state_ != nullptr; }

 private:
  friend class SpillFile;
  std::shared_ptr<TransferState> state_;
  int64_t num_bytes_ = 0;
};

// A file of a fixed size whose ranges are read and written while the caller goes on. Bytes that were never
// written read as zero. Used by one thread. Offsets, sizes and addresses are multiples of kSpillAlignment.
//
// By the best way that the system allows: io_uring with direct I/O and registered buffers, or threads, or
// without direct I/O through the page cache; text() says which, and why not the better one.
class SpillFile {
 public:
  // Makes the file in `folder`, which exists, and reserves its space. `buffers` is the memory that transfers
  // use most; it must outlive the file. Throws Error(Storage): NO-SPACE with the bytes that are wanted and
  // free, or what makes the folder unfit.
  SpillFile(const std::string& folder, int64_t num_bytes, const SpillOptions& options,
            const std::vector<std::span<char>>& buffers = {});
  // Waits for what is under way. Nothing is left of the file.
  ~SpillFile();
  SpillFile(const SpillFile&) = delete;
  SpillFile& operator=(const SpillFile&) = delete;

  // Begin to move bytes from `offset` on. The memory must stay, and nobody may touch it (for a write: change
  // it), until wait() returns; the ranges of transfers that are under way together must not overlap unless
  // all of them read.
  Transfer start_read(int64_t offset, std::span<char> into);
  Transfer start_write(int64_t offset, std::span<const char> from);
  // Returns when the transfer has ended, with every byte moved. Throws Error(Storage) with the path and the
  // byte where it failed: NO-SPACE, IO, SHORT-READ and what else storage_error() names. A transfer that was
  // never started, or was waited for, is ended.
  void wait(Transfer& transfer);
  // Says whether wait() would return at once.
  bool has_ended(const Transfer& transfer);

  int64_t size() const { return num_bytes_; }
  const std::string& folder() const { return folder_; }
  // Describes how bytes are moved: "io_uring with 16 requests in flight and registered buffers, direct I/O".
  const std::string& text() const { return text_; }

 private:
  Transfer start(int64_t offset, char* data, int64_t num_bytes, bool is_write);
  void open(bool tries_direct);
  void reserve() const;

  const std::string folder_;
  const int64_t num_bytes_, request_bytes_;
  int descriptor_ = -1;
  std::unique_ptr<TransferEngine> engine_;
  std::string text_;
};

}  // namespace tessera::io
