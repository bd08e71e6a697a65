// Counts what the memory of tensors is used for: bytes by category, now and when they were most.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string_view>

namespace tessera {

enum class MemoryCategory : uint8_t {
  Parameters,          // this rank's tiles
  GatheredParameters,  // whole parameters of the units at work
  Gradients,           // of parameters
  OptimizerState,
  Activations,    // of the forward pass, mostly saved for the backward
  Loss,           // a chunk of logits and the gradient of the last hidden states
  Backward,       // gradients of activations, and what the backward computes on the way
  Communication,  // buffers of collectives
  Other,
};
inline constexpr size_t kNumMemoryCategories = static_cast<size_t>(MemoryCategory::Other) + 1;

// The category's name for people, such as "gathered parameters".
std::string_view memory_category_name(MemoryCategory category);

namespace memory_ledger {

// Bytes of each category at some moment.
struct Peak {
  std::array<int64_t, kNumMemoryCategories> bytes{};
  int64_t idle_bytes = 0;  // kept by the allocator for later tensors
  int64_t total() const;   // without idle_bytes
  int64_t of(MemoryCategory category) const { return bytes[static_cast<size_t>(category)]; }
};

namespace detail {
extern std::atomic<bool> g_is_on;
}

// Counts what the CPU allocator (cpu_allocator.h) hands out and takes back from start() to stop(); start()
// begins with nothing. Thread-safe.
void start();
void stop();
inline bool is_on() { return detail::g_is_on.load(std::memory_order_relaxed); }

// Allocators call add() for memory that they hand out and remove() for memory that comes back. Memory that
// was handed out before start() is ignored.
void add(const void* memory, int64_t bytes, MemoryCategory category) noexcept;
void remove(const void* memory) noexcept;
// Counts memory from elsewhere (mapped windows): `bytes` more, or fewer, of a category.
void add_external(MemoryCategory category, int64_t bytes) noexcept;

// live() gives what is in use now, and peak() what was in use when the sum was largest (known to a mebibyte).
Peak live();
Peak peak();
// The largest value of each category by itself; they need not have been at one time.
Peak most();

// Sets the function that tells how many bytes the allocator keeps unused, which is asked at every new peak;
// may be null.
void set_idle_bytes(int64_t (*idle_bytes)());

}  // namespace memory_ledger
}  // namespace tessera
