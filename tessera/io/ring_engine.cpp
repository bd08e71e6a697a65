// The engine of io_uring, by its system calls.
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <deque>
#include <optional>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <system_error>
#include <utility>

#include <linux/io_uring.h>
#include <unistd.h>

#include "tessera/io/disk_calls.h"
#include "tessera/io/file.h"
#include "tessera/io/transfer_engine.h"

namespace tessera::io {
namespace {

// Memory that the kernel shares with this process.
class Mapping {
 public:
  Mapping() = default;
  Mapping(int ring, size_t bytes, off_t offset)
      : bytes_(bytes),
        memory_(::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring, offset)) {}
  ~Mapping() {
    if (is_there()) ::munmap(memory_, bytes_);
  }
  Mapping(Mapping&& other) noexcept
      : bytes_(other.bytes_), memory_(std::exchange(other.memory_, MAP_FAILED)) {}
  Mapping& operator=(Mapping&& other) noexcept {
    std::swap(bytes_, other.bytes_);
    std::swap(memory_, other.memory_);
    return *this;
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  bool is_there() const { return memory_ != MAP_FAILED; }
  template <class T>
  T* at(uint32_t offset) const {
    return reinterpret_cast<T*>(static_cast<char*>(memory_) + offset);
  }

 private:
  size_t bytes_ = 0;
  void* memory_ = MAP_FAILED;
};

// [Note: the two rings] The kernel and this thread share two rings of entries, each with a head, where one
// takes entries out, and a tail, behind which the other one puts them. This thread writes a request into a
// slot of `entries_`, puts the slot's number behind the tail of the submission ring, and io_uring_enter()
// tells the kernel of it. The kernel puts results behind the tail of the completion ring, from where reap()
// takes them. Each side reads the other's index with acquire and publishes its own with release, so that an
// entry is seen whole. A request keeps its slot until it has ended, so there are never more results than the
// completion ring has room for.
class RingEngine : public TransferEngine {
 public:
  RingEngine(EngineFile file, int ring, const io_uring_params& parameters, int64_t depth)
      : file_(std::move(file)),
        ring_(ring),
        slots_(static_cast<size_t>(std::min<int64_t>(parameters.sq_entries, depth))) {
    const size_t of_submission = parameters.sq_off.array + parameters.sq_entries * sizeof(uint32_t);
    const size_t of_completion = parameters.cq_off.cqes + parameters.cq_entries * sizeof(io_uring_cqe);
    indices_ = Mapping(ring_, std::max(of_submission, of_completion), IORING_OFF_SQ_RING);
    entry_memory_ = Mapping(ring_, parameters.sq_entries * sizeof(io_uring_sqe), IORING_OFF_SQES);
    if (!is_there()) return;
    entries_ = entry_memory_.at<io_uring_sqe>(0);
    submission_tail_ = indices_.at<uint32_t>(parameters.sq_off.tail);
    submission_mask_ = *indices_.at<uint32_t>(parameters.sq_off.ring_mask);
    submission_numbers_ = indices_.at<uint32_t>(parameters.sq_off.array);
    completion_head_ = indices_.at<uint32_t>(parameters.cq_off.head);
    completion_tail_ = indices_.at<uint32_t>(parameters.cq_off.tail);
    completion_mask_ = *indices_.at<uint32_t>(parameters.cq_off.ring_mask);
    results_ = indices_.at<io_uring_cqe>(parameters.cq_off.cqes);
    for (uint32_t slot = 0; slot < slots_.size(); ++slot) free_.push_back(slot);
  }
  ~RingEngine() override {
    try {
      queue_.clear();
      while (num_in_flight_ > 0) {
        enter(1);
        reap();
      }
    } catch (const std::exception&) {  // the kernel takes the requests back when the ring is closed
    }
    ::close(ring_);
  }
  RingEngine(const RingEngine&) = delete;
  RingEngine& operator=(const RingEngine&) = delete;

  bool is_there() const { return indices_.is_there() && entry_memory_.is_there(); }

  void register_buffers(const std::vector<std::span<char>>& buffers) {
    std::vector<iovec> vectors;
    for (const std::span<char> buffer : buffers) vectors.push_back({buffer.data(), buffer.size()});
    if (vectors.empty()) return;
    if (::syscall(SYS_io_uring_register, ring_, IORING_REGISTER_BUFFERS, vectors.data(), vectors.size()) == 0)
      registered_ = buffers;
    else
      why_not_registered_ = std::generic_category().message(errno);
  }

  void start(const TransferRequest& request) override {
    queue_.push_back(request);
    submit();
  }
  void wait(const TransferState& transfer) override {
    while (transfer.num_open > 0) {
      submit();
      if (transfer.num_open > 0 && num_in_flight_ > 0 && !reap()) enter(1);
      reap();
    }
  }
  bool has_ended(const TransferState& transfer) override {
    reap();
    submit();
    return transfer.num_open == 0;
  }
  std::string text() const override {
    const std::string depth = "io_uring with " + std::to_string(slots_.size()) + " requests in flight";
    if (!registered_.empty()) return depth + " and registered buffers";
    return depth +
           (why_not_registered_.empty() ? "" : " (buffers not registered: " + why_not_registered_ + ")");
  }

 private:
  // Gives the kernel as many of the queued requests as have a slot.
  void submit() {
    while (!queue_.empty() && !free_.empty()) {
      TransferRequest request = std::move(queue_.front());
      queue_.pop_front();
      const bool is_write = request.transfer->is_write;
      const int64_t bytes = disk::bytes_to_move(is_write ? "write" : "read", file_.path, request.num_bytes);
      if (bytes <= 0) {
        settle(std::move(request), bytes);
        continue;
      }
      const uint32_t slot = free_.back();
      free_.pop_back();
      slots_[slot] = std::move(request);
      put(slot, bytes);
      ++num_in_flight_;
      ++num_unsent_;
    }
    if (num_unsent_ > 0) enter(0);
  }

  void put(uint32_t slot, int64_t num_bytes) {
    const TransferRequest& request = slots_[slot];
    const std::optional<uint16_t> buffer = registered_buffer(request);
    const bool is_write = request.transfer->is_write;
    io_uring_sqe& entry = entries_[slot];
    std::memset(&entry, 0, sizeof entry);
    if (buffer) {
      entry.opcode = is_write ? IORING_OP_WRITE_FIXED : IORING_OP_READ_FIXED;
      entry.buf_index = *buffer;
    } else {
      entry.opcode = is_write ? IORING_OP_WRITE : IORING_OP_READ;
    }
    entry.fd = file_.descriptor;
    entry.off = static_cast<uint64_t>(request.offset);
    entry.addr = reinterpret_cast<uint64_t>(request.data);
    entry.len = static_cast<uint32_t>(num_bytes);
    entry.user_data = slot;
    const uint32_t tail = *submission_tail_;  // nobody else writes it
    submission_numbers_[tail & submission_mask_] = slot;
    std::atomic_ref(*submission_tail_).store(tail + 1, std::memory_order_release);
  }

  std::optional<uint16_t> registered_buffer(const TransferRequest& request) const {
    for (size_t i = 0; i < registered_.size(); ++i) {
      const char* const begin = registered_[i].data();
      if (request.data >= begin && request.data + request.num_bytes <= begin + registered_[i].size())
        return static_cast<uint16_t>(i);
    }
    return std::nullopt;
  }

  // Tells the kernel of new requests, and waits for `least` results. Returns without them where the kernel is
  // short of memory or has results that it cannot put: reap() makes room.
  void enter(uint32_t least) {
    const long sent = ::syscall(SYS_io_uring_enter, ring_, num_unsent_, least,
                                least > 0 ? IORING_ENTER_GETEVENTS : 0u, nullptr, 0);
    if (sent >= 0) {
      num_unsent_ -= static_cast<uint32_t>(sent);
    } else if (errno != EINTR && errno != EAGAIN && errno != EBUSY) {
      throw storage_error(errno, "io_uring takes no requests any more", file_.path);
    }
  }

  // Takes results out of the ring. Returns whether there was any.
  bool reap() {
    uint32_t head = *completion_head_;  // nobody else writes it
    const uint32_t tail = std::atomic_ref(*completion_tail_).load(std::memory_order_acquire);
    if (head == tail) return false;
    for (; head != tail; ++head) {
      const io_uring_cqe& result = results_[head & completion_mask_];
      const auto slot = static_cast<uint32_t>(result.user_data);
      free_.push_back(slot);
      --num_in_flight_;
      settle(std::move(slots_[slot]), result.res);
    }
    std::atomic_ref(*completion_head_).store(head, std::memory_order_release);
    return true;
  }

  // Ends a request with the result of a call, or queues what is left of it.
  void settle(TransferRequest request, int64_t result) {
    if (take_result(request, result))
      queue_.push_front(std::move(request));
    else
      --request.transfer->num_open;
  }

  const EngineFile file_;
  const int ring_;
  Mapping indices_, entry_memory_;
  io_uring_sqe* entries_ = nullptr;
  uint32_t *submission_tail_ = nullptr, *submission_numbers_ = nullptr;
  uint32_t *completion_head_ = nullptr, *completion_tail_ = nullptr;
  uint32_t submission_mask_ = 0, completion_mask_ = 0;
  io_uring_cqe* results_ = nullptr;
  std::vector<TransferRequest> slots_;  // of each slot of `entries_`: the request that the kernel has
  std::vector<uint32_t> free_;          // slots
  std::deque<TransferRequest> queue_;   // requests that wait for a slot
  uint32_t num_unsent_ = 0, num_in_flight_ = 0;
  std::vector<std::span<char>> registered_;
  std::string why_not_registered_;
};

}  // namespace

std::unique_ptr<TransferEngine> make_ring_engine(const EngineFile& file, int64_t depth,
                                                 const std::vector<std::span<char>>& buffers,
                                                 std::string& why_not) {
  io_uring_params parameters{};
  const int ring = disk::make_ring(file.path, static_cast<uint32_t>(depth), &parameters);
  if (ring < 0) {
    why_not = error_name(errno);
    return nullptr;
  }
  // Kernels with this feature (from 5.6 on) also know the plain reads and writes, and share both rings in one
  // mapping.
  auto engine = std::make_unique<RingEngine>(file, ring, parameters, depth);
  if ((parameters.features & IORING_FEAT_RW_CUR_POS) == 0)
    why_not = "the kernel's io_uring is older than Linux 5.6";
  else if (!engine->is_there())
    why_not = "its rings cannot be mapped: " + error_name(errno);
  else
    engine->register_buffers(buffers);
  if (!why_not.empty()) return nullptr;
  return engine;
}

}  // namespace tessera::io
