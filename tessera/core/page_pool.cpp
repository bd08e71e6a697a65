#include "tessera/core/page_pool.h"

#include <algorithm>
#include <limits>
#include <sys/mman.h>
#include <sys/resource.h>

#include "tessera/core/error.h"
#include "tessera/core/process_stats.h"
#include "tessera/core/round_up.h"

namespace tessera {
namespace {

// Memory is made accessible in steps of this size.
constexpr size_t kCommitStep = size_t{64} << 20;
constexpr size_t kHugePage = size_t{2} << 20;

}  // namespace

PagePool::PagePool(const PagePoolOptions& options)
    : granule_(options.granule_bytes),
      slack_bytes_(options.slack_bytes),
      wants_huge_pages_(options.wants_huge_pages) {
  TESSERA_ASSERT(granule_ >= kPage && (granule_ & (granule_ - 1)) == 0 && granule_ <= kCommitStep,
                 "granule of a page pool");
  size_t wanted = options.reserve_bytes;
  if (wanted == 0) {
    // A user who limits addresses (ulimit -v) wants them counted as memory, so none are reserved.
    rlimit limit{};
    if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur != RLIM_INFINITY) return;
    wanted = 4 * static_cast<size_t>(total_memory_bytes());
    if (wanted == 0) return;
  }
  wanted = round_up(wanted, kCommitStep);
  mapping_bytes_ = wanted + kHugePage;
  // Mapped so that nobody has access, the range is not counted against the system's memory yet.
  mapping_ = mmap(nullptr, mapping_bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapping_ == MAP_FAILED) {
    mapping_ = nullptr;
    return;
  }
  const auto address = reinterpret_cast<uintptr_t>(mapping_);
  // The range begins at a huge page's start, so that granules and huge pages share their bounds.
  begin_ = static_cast<char*>(mapping_) + (round_up(address, kHugePage) - address);
  reserved_bytes_ = wanted;
  if (options.wants_huge_pages) madvise(begin_, reserved_bytes_, MADV_HUGEPAGE);
}

PagePool::~PagePool() {
  if (mapping_ != nullptr) munmap(mapping_, mapping_bytes_);
}

void* PagePool::allocate(size_t bytes) {
  if (bytes > reserved_bytes_) return nullptr;
  bytes = round_up(bytes, kPage);
  const std::lock_guard<std::mutex> lock(mutex_);
  Block* block = find(bytes);
  if (block == nullptr) {
    if (!extend(bytes)) return nullptr;
    block = find(bytes);
  }
  // Everything that can throw comes before the first change.
  Block* rest = block->bytes > bytes ? take_node() : nullptr;
  try {
    live_.emplace(block->begin, block);
  } catch (...) {
    if (rest != nullptr) recycle(rest);
    throw;
  }
  unlink_free(block);
  block->is_free = false;
  if (rest != nullptr) cut(block, bytes, rest);
  occupy(*block);
  return block->begin;
}

void PagePool::deallocate(void* data) noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = live_.find(data);
  if (found == live_.end()) return;
  Block* block = found->second;
  live_.erase(found);
  stats_.live_bytes -= static_cast<int64_t>(block->bytes);
  // The block leaves its granules. They keep their pages, which may be returned once no live block is in
  // them.
  char* const end = block->begin + block->bytes;
  for (char* at = block->begin; at < end;) {
    const size_t granule = granule_of(at);
    char* const next = std::min(end, begin_ + (granule + 1) * granule_);
    granules_[granule].live_bytes -= static_cast<uint32_t>(next - at);
    at = next;
  }
  block->is_free = true;
  block->freed_at = ++clock_;
  link_free(block);
  if (block->next != nullptr && block->next->is_free) merge_with_next(block);
  if (block->previous != nullptr && block->previous->is_free) merge_with_next(block->previous);
}

void PagePool::trim() noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  return_pages(std::numeric_limits<size_t>::max());
  retract();
  stats_.peak_live_bytes = stats_.live_bytes;
}

PagePoolStats PagePool::stats() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  PagePoolStats stats = stats_;
  stats.committed_bytes = static_cast<int64_t>(committed_bytes_);
  return stats;
}

// Gives how many granules of the stretch have no pages yet.
size_t PagePool::num_fresh_granules(const char* begin, size_t bytes) const {
  const size_t last = granule_of(begin + bytes - 1);
  size_t count = 0;
  for (size_t granule = granule_of(begin); granule <= last; ++granule) {
    count += granules_[granule].is_resident ? 0 : 1;
  }
  return count;
}

// Gives the free block that is best to cut `bytes` from, null if none is large enough: it needs the fewest
// new granules, and is the smallest of those. Granules are not counted for a block that cannot be better.
PagePool::Block* PagePool::find(size_t bytes) const {
  Block* best = nullptr;
  size_t best_fresh = 0;
  for (Block* block = free_blocks_; block != nullptr; block = block->next_free) {
    if (block->bytes < bytes) continue;
    if (best != nullptr && best_fresh == 0 && block->bytes >= best->bytes) continue;
    const size_t fresh = num_fresh_granules(block->begin, bytes);
    if (best == nullptr || fresh < best_fresh || (fresh == best_fresh && block->bytes < best->bytes)) {
      best = block;
      best_fresh = fresh;
    }
  }
  return best;
}

// Commits more of the range, so that the last free block holds `bytes`. False if the range is used up or the
// system refuses. All that can throw comes before the change of access.
bool PagePool::extend(size_t bytes) {
  const size_t room = last_ != nullptr && last_->is_free ? last_->bytes : 0;
  const size_t step = round_up(bytes - room, kCommitStep);
  if (!can_extend_ || step > reserved_bytes_ - committed_bytes_) return false;
  Block* block = take_node();
  try {
    granules_.resize((committed_bytes_ + step) / granule_);
  } catch (...) {
    recycle(block);
    throw;
  }
  if (mprotect(begin_ + committed_bytes_, step, PROT_READ | PROT_WRITE) != 0) {
    recycle(block);
    return false;
  }
  block->begin = begin_ + committed_bytes_;
  block->bytes = step;
  block->is_free = true;
  block->freed_at = ++clock_;
  block->previous = last_;
  if (last_ != nullptr) last_->next = block;
  last_ = block;
  committed_bytes_ += step;
  link_free(block);
  if (block->previous != nullptr && block->previous->is_free) merge_with_next(block->previous);
  return true;
}

// Cuts a block in two: `block` keeps its first `bytes`, and `rest` becomes a free block of what remains.
void PagePool::cut(Block* block, size_t bytes, Block* rest) noexcept {
  rest->begin = block->begin + bytes;
  rest->bytes = block->bytes - bytes;
  rest->freed_at = block->freed_at;
  rest->is_free = true;
  rest->previous = block;
  rest->next = block->next;
  if (rest->next != nullptr) rest->next->previous = rest;
  block->next = rest;
  block->bytes = bytes;
  if (last_ == block) last_ = rest;
  link_free(rest);
}

// Counts the block as live. If it takes new granules and the pool then holds more than was ever live (and the
// slack), as many unused pages are returned. That comes in time: the new pages take memory only when the
// caller writes to them.
void PagePool::occupy(const Block& block) noexcept {
  char* const end = block.begin + block.bytes;
  size_t fresh = 0;
  for (char* at = block.begin; at < end;) {
    const size_t number = granule_of(at);
    Granule& granule = granules_[number];
    char* const next = std::min(end, begin_ + (number + 1) * granule_);
    granule.live_bytes += static_cast<uint32_t>(next - at);
    if (!granule.is_resident) fresh += granule_;
    granule.is_resident = true;
    at = next;
  }
  ++stats_.num_allocations;
  stats_.live_bytes += static_cast<int64_t>(block.bytes);
  stats_.peak_live_bytes = std::max(stats_.peak_live_bytes, stats_.live_bytes);
  stats_.resident_bytes += static_cast<int64_t>(fresh);
  stats_.fresh_bytes += static_cast<int64_t>(fresh);
  const int64_t excess = stats_.resident_bytes - stats_.peak_live_bytes - static_cast<int64_t>(slack_bytes_);
  if (fresh > 0 && excess > 0) return_pages(static_cast<size_t>(excess));
  stats_.peak_resident_bytes = std::max(stats_.peak_resident_bytes, stats_.resident_bytes);
}

// Takes the free end of the committed part out of it, to a whole step. Its pages were returned before.
void PagePool::retract() noexcept {
  if (last_ == nullptr || !last_->is_free) return;
  const size_t kept = round_up(static_cast<size_t>(last_->begin - begin_), kCommitStep);
  const size_t bytes = committed_bytes_ - kept;
  if (bytes == 0) return;
  for (size_t i = kept / granule_; i < granules_.size(); ++i) {
    if (granules_[i].is_resident) return;  // the system has not taken it back
  }
  committed_bytes_ = kept;
  granules_.resize(kept / granule_);
  last_->bytes -= bytes;
  if (last_->bytes == 0) {
    Block* empty = last_;
    unlink_free(empty);
    last_ = empty->previous;
    if (last_ != nullptr) last_->next = nullptr;
    recycle(empty);
  }
  // The end is mapped anew, since the system goes on counting memory that has only lost its access.
  char* const end = begin_ + kept;
  constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
  if (mmap(end, bytes, PROT_NONE, kFlags, -1, 0) == MAP_FAILED) {
    can_extend_ = false;  // what is mapped there now is not known
    return;
  }
  if (wants_huge_pages_) madvise(end, bytes, MADV_HUGEPAGE);
}

// Returns about `bytes` of unused pages, those first that were unused for longest. Each round takes the free
// block that was freed next after the last one; no two blocks have the same freed_at.
void PagePool::return_pages(size_t bytes) noexcept {
  uint64_t after = 0;
  while (bytes > 0) {
    const Block* oldest = nullptr;
    for (const Block* block = free_blocks_; block != nullptr; block = block->next_free) {
      if (block->freed_at >= after && (oldest == nullptr || block->freed_at < oldest->freed_at))
        oldest = block;
    }
    if (oldest == nullptr) return;
    bytes -= std::min(bytes, return_pages_of(*oldest, bytes));
    after = oldest->freed_at + 1;
  }
}

// Returns up to about `bytes` of a free block's pages and gives how many bytes those were. Begins at the
// block's end, since new blocks are cut from its begin. Granules that a live neighbour reaches into stay.
size_t PagePool::return_pages_of(const Block& block, size_t bytes) noexcept {
  size_t released = 0;
  const size_t first = granule_of(block.begin);
  size_t stop = granule_of(block.begin + block.bytes - 1) + 1;  // one after the last granule to look at
  const auto is_unused = [&](size_t i) { return granules_[i].is_resident && granules_[i].live_bytes == 0; };
  while (stop > first && released < bytes) {
    if (!is_unused(stop - 1)) {
      --stop;
      continue;
    }
    size_t start = stop - 1;
    while (start > first && is_unused(start - 1) && released + (stop - start) * granule_ < bytes) --start;
    const size_t run = (stop - start) * granule_;
    if (madvise(begin_ + start * granule_, run, MADV_DONTNEED) != 0) return released;
    for (size_t i = start; i < stop; ++i) granules_[i].is_resident = false;
    stats_.resident_bytes -= static_cast<int64_t>(run);
    stats_.returned_bytes += static_cast<int64_t>(run);
    released += run;
    stop = start;
  }
  return released;
}

// Makes one free block of `block` and the next one. It counts as freed when the later of the two was.
void PagePool::merge_with_next(Block* block) noexcept {
  Block* next = block->next;
  unlink_free(next);
  block->bytes += next->bytes;
  block->freed_at = std::max(block->freed_at, next->freed_at);
  block->next = next->next;
  if (block->next != nullptr) block->next->previous = block;
  if (last_ == next) last_ = block;
  recycle(next);
}

void PagePool::link_free(Block* block) noexcept {
  block->previous_free = nullptr;
  block->next_free = free_blocks_;
  if (free_blocks_ != nullptr) free_blocks_->previous_free = block;
  free_blocks_ = block;
}

void PagePool::unlink_free(Block* block) noexcept {
  (block->previous_free != nullptr ? block->previous_free->next_free : free_blocks_) = block->next_free;
  if (block->next_free != nullptr) block->next_free->previous_free = block->previous_free;
  block->previous_free = block->next_free = nullptr;
}

// Gives an empty node, a spare one if there is any. May throw, unlike recycle().
PagePool::Block* PagePool::take_node() {
  if (spare_nodes_ == nullptr) {
    nodes_.push_back(std::make_unique<Block>());
    return nodes_.back().get();
  }
  Block* node = spare_nodes_;
  spare_nodes_ = node->next;
  *node = Block();
  return node;
}

void PagePool::recycle(Block* block) noexcept {
  *block = Block();
  block->next = spare_nodes_;
  spare_nodes_ = block;
}

}  // namespace tessera
