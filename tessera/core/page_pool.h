// Memory for large blocks whose pages stay with the process between uses.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

namespace tessera {

struct PagePoolOptions {
  // Address space to reserve; memory is taken only as blocks are used. 0: four times the machine's memory.
  size_t reserve_bytes = 0;
  // The unit in which unused memory goes back to the system: a power of two, at least a page.
  size_t granule_bytes = size_t{64} << 10;
  // Asks the system for huge pages, 2 MiB each. If granules are smaller, the system splits a huge page of
  // which a part is returned, and the pool may hold up to one huge page of which only a part was touched.
  bool wants_huge_pages = false;
  // Bytes that the pool may hold beyond the most that was ever in use.
  size_t slack_bytes = size_t{16} << 20;
};

struct PagePoolStats {
  int64_t live_bytes = 0;      // in blocks that are handed out
  int64_t resident_bytes = 0;  // of memory: live blocks, and unused pages kept for the next ones
  int64_t peak_live_bytes = 0, peak_resident_bytes = 0;
  int64_t committed_bytes = 0;  // accessible memory, all of which a system counts that does not overcommit
  int64_t fresh_bytes = 0;      // taken from the system so far
  int64_t returned_bytes = 0;   // given back to the system so far
  int64_t num_allocations = 0;
};

// [Note: how the pool bounds memory]
// Blocks lie in one reserved range of addresses. A block is cut from the free space that needs the fewest
// pages from the system, and among equals from the smallest; free neighbours merge. Pages of freed blocks are
// kept. But when new pages are needed and the pool holds as much as was ever in use at once (and a small
// slack), it first returns as many of the pages that were unused for longest. So its memory never exceeds
// what the blocks alone needed at their peak (and the slack), however badly the holes fit. Addresses may be
// wasted; they cost nothing.
//
// Thread-safe.
class PagePool {
 public:
  static constexpr size_t kPage = 4096;

  explicit PagePool(const PagePoolOptions& options = {});
  // Every block must have been freed.
  ~PagePool();
  PagePool(const PagePool&) = delete;
  PagePool& operator=(const PagePool&) = delete;

  // False if the system refused the address space: then nothing can be allocated.
  bool is_available() const { return begin_ != nullptr; }
  // Gives a block of at least `bytes`, which must not be 0, at a page's start, with undefined contents. Null
  // if the system refuses memory or the addresses are used up.
  void* allocate(size_t bytes);
  // Takes back a block that came from allocate().
  void deallocate(void* block) noexcept;
  // Tells whether the address lies in the pool.
  bool owns(const void* address) const noexcept {
    return address >= begin_ && address < begin_ + reserved_bytes_;
  }
  // Returns every unused page to the system, and the addresses after the last block. The most that was in use
  // counts anew from what is in use now.
  void trim() noexcept;
  PagePoolStats stats() const;

 private:
  // A stretch of addresses, live or free. Blocks cover the committed part of the range without gaps.
  struct Block {
    char* begin = nullptr;
    size_t bytes = 0;
    Block *previous = nullptr, *next = nullptr;            // by address
    Block *previous_free = nullptr, *next_free = nullptr;  // in any order
    uint64_t freed_at = 0;
    bool is_free = false;
  };
  // The unit in which pages are counted and returned. It is resident from its first use until it is returned.
  struct Granule {
    uint32_t live_bytes = 0;  // of live blocks
    bool is_resident = false;
  };

  size_t granule_of(const char* address) const { return static_cast<size_t>(address - begin_) / granule_; }
  size_t num_fresh_granules(const char* begin, size_t bytes) const;
  Block* find(size_t bytes) const;
  bool extend(size_t bytes);
  void cut(Block* block, size_t bytes, Block* rest) noexcept;
  void occupy(const Block& block) noexcept;
  void return_pages(size_t bytes) noexcept;
  void retract() noexcept;
  size_t return_pages_of(const Block& block, size_t bytes) noexcept;
  void merge_with_next(Block* block) noexcept;
  void link_free(Block* block) noexcept;
  void unlink_free(Block* block) noexcept;
  Block* take_node();
  void recycle(Block* block) noexcept;

  const size_t granule_;
  const size_t slack_bytes_;
  const bool wants_huge_pages_;
  mutable std::mutex mutex_;
  char* begin_ = nullptr;
  size_t reserved_bytes_ = 0, committed_bytes_ = 0;
  bool can_extend_ = true;
  void* mapping_ = nullptr;
  size_t mapping_bytes_ = 0;
  std::vector<Granule> granules_;  // of the committed part, in the order of addresses
  std::unordered_map<const void*, Block*> live_;
  std::vector<std::unique_ptr<Block>> nodes_;
  Block *spare_nodes_ = nullptr, *free_blocks_ = nullptr, *last_ = nullptr;
  uint64_t clock_ = 0;
  PagePoolStats stats_;
};

}  // namespace tessera
