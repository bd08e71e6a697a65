#include "tessera/io/spill_file.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <sys/stat.h>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

#include "tessera/core/error.h"
#include "tessera/core/huge_pages.h"
#include "tessera/core/round_up.h"
#include "tessera/core/strings.h"
#include "tessera/io/disk_calls.h"
#include "tessera/io/file.h"

namespace tessera::io {
namespace {

constexpr const char* kHowToHelp =
    "name a folder on a drive with more room, or leave less on it: more ranks, optimizer_state_dtype: "
    "bfloat16, an optimizer with smaller states";

// Completes an error about a file without a name in `folder`.
Error spill_error(int cause, const std::string& what, const std::string& folder, int64_t wanted) {
  Error error = storage_error(cause, what, folder);
  if (cause != ENOSPC && cause != EDQUOT && cause != EFBIG) return error;
  int64_t free = -1;
  try {
    free = free_space(folder);
  } catch (const Error&) {  // the drive is gone, which the error itself tells
  }
  if (free >= 0) error.got(format_bytes(free) + " free");
  return error.need(format_bytes(wanted)).hint(kHowToHelp);
}

// Says whether direct I/O on the file takes ranges of kSpillAlignment. Kernels before 6.1 do not tell; then
// it does, as blocks of drives are no larger.
bool takes_alignment(int descriptor) {
#ifdef STATX_DIOALIGN
  struct statx status {};
  if (::statx(descriptor, "", AT_EMPTY_PATH, STATX_DIOALIGN, &status) != 0) return true;
  if ((status.stx_mask & STATX_DIOALIGN) == 0) return true;
  return status.stx_dio_offset_align > 0 && kSpillAlignment % status.stx_dio_offset_align == 0 &&
         status.stx_dio_mem_align > 0 && kSpillAlignment % status.stx_dio_mem_align == 0;
#else
  (void)descriptor;
  return true;
#endif
}

bool is_aligned(int64_t value) { return value % kSpillAlignment == 0; }

}  // namespace

AlignedMemory::AlignedMemory(int64_t num_bytes) {
  const auto size = static_cast<size_t>(round_up(std::max<int64_t>(num_bytes, 1), kSpillAlignment));
  void* const memory = std::aligned_alloc(static_cast<size_t>(kSpillAlignment), size);
  if (memory == nullptr) {
    throw Error(ErrorKind::Memory, "SPILL-BUFFER", "there is no memory for a buffer of the drive")
        .need(format_bytes(num_bytes))
        .hint("offload_optimizer_buffer_count makes fewer buffers");
  }
  bytes_ = {static_cast<char*>(memory), size};
  advise_huge_pages(memory, static_cast<int64_t>(size));
}

AlignedMemory::~AlignedMemory() { std::free(bytes_.data()); }

AlignedMemory::AlignedMemory(AlignedMemory&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}

AlignedMemory& AlignedMemory::operator=(AlignedMemory&& other) noexcept {
  std::swap(bytes_, other.bytes_);
  return *this;
}

SpillFile::SpillFile(const std::string& folder, int64_t num_bytes, const SpillOptions& options,
                     const std::vector<std::span<char>>& buffers)
    : folder_(folder),
      num_bytes_(round_up(num_bytes, kSpillAlignment)),
      request_bytes_(options.request_bytes) {
  TESSERA_ASSERT(request_bytes_ > 0 && is_aligned(request_bytes_), "requests of whole blocks");
  open(options.tries_direct);
  try {
    reserve();
    const EngineFile file{descriptor_, folder_};
    std::string why_not = "not tried";
    if (options.tries_ring) {
      why_not.clear();
      engine_ = make_ring_engine(file, options.depth, buffers, why_not);
    }
    if (engine_ == nullptr) engine_ = make_thread_engine(file, options.depth);
    text_ = engine_->text() + (why_not.empty() ? "" : " (io_uring: " + why_not + ")") + ", " + text_;
  } catch (...) {
    ::close(descriptor_);
    throw;
  }
}

SpillFile::~SpillFile() {
  engine_.reset();
  ::close(descriptor_);
}

void SpillFile::open(bool tries_direct) {
  std::string why_not = "not tried";
  if (tries_direct) {
    descriptor_ = disk::open_nameless(folder_, O_DIRECT);
    const int cause = descriptor_ < 0 ? errno : 0;
    if (cause == 0 && takes_alignment(descriptor_)) {
      text_ = "direct I/O";
      return;
    }
    if (cause != 0 && cause != EINVAL && cause != EOPNOTSUPP)
      throw spill_error(cause, "cannot make a file for offloaded states", folder_, num_bytes_);
    why_not = cause != 0 ? error_name(cause) : "the drive's blocks are too large";
    if (cause == 0) ::close(descriptor_);
  }
  descriptor_ = disk::open_nameless(folder_, 0);
  if (descriptor_ < 0)
    throw spill_error(errno, "cannot make a file for offloaded states", folder_, num_bytes_);
  text_ = "through the page cache (direct I/O: " + why_not + ")";
}

void SpillFile::reserve() const {
  if (num_bytes_ == 0) return;
  // A file system may take all that is free before it finds that this is not enough.
  int cause = free_space(folder_) < num_bytes_ ? ENOSPC : 0;
  if (cause == 0 && disk::allocate(descriptor_, folder_, num_bytes_) != 0) cause = errno;
  // This one cannot reserve space: a drive that fills in the course of the run is found by the write.
  if (cause == EOPNOTSUPP || cause == ENOSYS || cause == EINVAL)
    cause = disk::truncate(descriptor_, folder_, num_bytes_) != 0 ? errno : 0;
  if (cause == 0) return;
  throw spill_error(cause, "cannot reserve the space for offloaded states", folder_, num_bytes_);
}

Transfer SpillFile::start_read(int64_t offset, std::span<char> into) {
  return start(offset, into.data(), std::ssize(into), false);
}

Transfer SpillFile::start_write(int64_t offset, std::span<const char> from) {
  return start(offset, const_cast<char*>(from.data()), std::ssize(from), true);
}

Transfer SpillFile::start(int64_t offset, char* data, int64_t num_bytes, bool is_write) {
  TESSERA_ASSERT(is_aligned(offset) && is_aligned(num_bytes) &&
                     reinterpret_cast<uintptr_t>(data) % static_cast<uintptr_t>(kSpillAlignment) == 0,
                 "a range of whole blocks");
  TESSERA_ASSERT(offset >= 0 && num_bytes >= 0 && offset + num_bytes <= num_bytes_, "a range of the file");
  Transfer transfer;
  transfer.state_ = std::make_shared<TransferState>();
  transfer.num_bytes_ = num_bytes;
  transfer.state_->is_write = is_write;
  transfer.state_->num_open = (num_bytes + request_bytes_ - 1) / request_bytes_;
  for (int64_t begin = 0; begin < num_bytes; begin += request_bytes_) {
    engine_->start(
        {offset + begin, data + begin, std::min(request_bytes_, num_bytes - begin), transfer.state_});
  }
  return transfer;
}

void SpillFile::wait(Transfer& transfer) {
  if (!transfer.is_started()) return;
  engine_->wait(*transfer.state_);
  const std::shared_ptr<TransferState> ended = std::exchange(transfer.state_, nullptr);
  if (ended->cause == 0) return;
  const std::string place = folder_ + ": offloaded states: byte " + std::to_string(ended->failed_at);
  if (ended->cause == TransferState::kEndOfFile) {
    throw Error(ErrorKind::Storage, "SHORT-READ", "the file ends before the bytes that are needed")
        .in(place)
        .need("a file of " + std::to_string(num_bytes_) + " bytes, as it was made");
  }
  Error error = spill_error(ended->cause, ended->is_write ? "cannot write" : "cannot read", folder_,
                            transfer.num_bytes_);
  error.in(place);
  throw error;
}

bool SpillFile::has_ended(const Transfer& transfer) {
  return !transfer.is_started() || engine_->has_ended(*transfer.state_);
}

}  // namespace tessera::io
