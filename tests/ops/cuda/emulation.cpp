#include "tests/ops/cuda/emulation.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <vector>

#include <ucontext.h>
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif

namespace tessera::emulation {
namespace {

constexpr size_t kStackBytes = size_t{128} << 10;

enum class State { Ready, AtBarrier, InExchange, Done };

struct Thread {
  ucontext_t context;
  std::unique_ptr<char[]> stack = std::make_unique<char[]>(kStackBytes);
  State state = State::Ready;
  uint32_t mask = 0;       // lanes of the exchange that the thread is in
  uint64_t exchanges = 0;  // number of exchanges so far
  uint64_t given[2] = {};  // its values in the last two: others may still read that of the one before
  void* fake_stack = nullptr;
};

ucontext_t scheduler;
void* scheduler_fake_stack = nullptr;
const void* scheduler_stack = nullptr;
size_t scheduler_stack_bytes = 0;

std::vector<std::unique_ptr<Thread>> threads;
const std::function<void()>* running_kernel = nullptr;
// Memory of the running block for one key. It begins `offset` bytes into `bytes`.
struct Shared {
  std::vector<char> bytes;
  size_t offset = 0;
};
std::map<const void*, Shared> memory;
uint64_t launches = 0;

// Tells the address sanitizer that the running thread leaves its stack for another one.
void leave(void** fake_stack, const void* stack, size_t bytes) {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(fake_stack, stack, bytes);
#endif
}
void arrive(void* fake_stack, const void** old_stack, size_t* old_bytes) {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(fake_stack, old_stack, old_bytes);
#endif
}

Thread& current() { return *threads[threadIdx.x]; }

void run_thread() {
  arrive(nullptr, &scheduler_stack, &scheduler_stack_bytes);
  (*running_kernel)();
  current().state = State::Done;
  leave(nullptr, scheduler_stack, scheduler_stack_bytes);
  setcontext(&scheduler);
}

void resume(unsigned number) {
  threadIdx = dim3(number);
  Thread& thread = current();
  leave(&scheduler_fake_stack, thread.stack.get(), kStackBytes);
  swapcontext(&scheduler, &thread.context);
  arrive(scheduler_fake_stack, nullptr, nullptr);
}

void pause(State state) {
  Thread& thread = current();
  thread.state = state;
  leave(&thread.fake_stack, scheduler_stack, scheduler_stack_bytes);
  swapcontext(&thread.context, &scheduler);
  arrive(thread.fake_stack, &scheduler_stack, &scheduler_stack_bytes);
}

bool has_all_partners(unsigned number) {
  const Thread& thread = *threads[number];
  for (unsigned lane = 0; lane < 32; ++lane) {
    if ((thread.mask >> lane & 1) == 0) continue;
    const unsigned partner = number / 32 * 32 + lane;
    if (partner >= blockDim.x || threads[partner]->exchanges < thread.exchanges) return false;
  }
  return true;
}

// Opens the barrier if all threads have come to it or ended. Tells whether a thread can go on because of it.
bool open_barrier_if_all_wait() {
  for (unsigned i = 0; i < blockDim.x; ++i) {
    if (threads[i]->state != State::AtBarrier && threads[i]->state != State::Done) return false;
  }
  bool has_opened = false;
  for (unsigned i = 0; i < blockDim.x; ++i) {
    if (threads[i]->state != State::AtBarrier) continue;
    threads[i]->state = State::Ready;
    has_opened = true;
  }
  return has_opened;
}

// Resumes each of the threads that can run once, in a random order. Tells whether any could.
bool resume_all_that_can(std::vector<unsigned>& numbers, std::mt19937_64& random) {
  std::shuffle(numbers.begin(), numbers.end(), random);
  bool has_moved = false;
  for (const unsigned number : numbers) {
    const State state = threads[number]->state;
    if (state == State::Ready || (state == State::InExchange && has_all_partners(number))) {
      resume(number);
      has_moved = true;
    }
  }
  return has_moved;
}

void run_block(std::mt19937_64& random) {
  memory.clear();
  while (threads.size() < blockDim.x) threads.push_back(std::make_unique<Thread>());
  for (unsigned i = 0; i < blockDim.x; ++i) {
    Thread& thread = *threads[i];
    thread.state = State::Ready;
    thread.exchanges = 0;
    getcontext(&thread.context);
    thread.context.uc_stack.ss_sp = thread.stack.get();
    thread.context.uc_stack.ss_size = kStackBytes;
    thread.context.uc_link = nullptr;
    makecontext(&thread.context, run_thread, 0);
  }
  // Either all threads take turns, or one warp runs as far as it can before the next one does. So a warp
  // overtakes others as far as the barriers allow.
  const unsigned group_size = random() % 2 == 0 ? blockDim.x : 32;
  std::vector<std::vector<unsigned>> groups((blockDim.x + group_size - 1) / group_size);
  for (unsigned i = 0; i < blockDim.x; ++i) groups[i / group_size].push_back(i);
  for (bool has_moved = true; has_moved;) {
    has_moved = false;
    std::shuffle(groups.begin(), groups.end(), random);
    for (std::vector<unsigned>& group : groups) {
      while (resume_all_that_can(group, random)) has_moved = true;
    }
    has_moved = open_barrier_if_all_wait() || has_moved;
  }
  for (unsigned i = 0; i < blockDim.x; ++i) {
    if (threads[i]->state == State::Done) continue;
    std::fprintf(stderr, "emulation: threads of a block wait for each other in vain\n");
    std::abort();
  }
}

}  // namespace

void run_grid(unsigned blocks, unsigned threads_of_block, const std::function<void()>& kernel) {
  std::mt19937_64 random(seed + ++launches);
  running_kernel = &kernel;
  gridDim = dim3(blocks);
  blockDim = dim3(threads_of_block);
  // Blocks run in a random order too.
  std::vector<unsigned> order(blocks);
  std::iota(order.begin(), order.end(), 0u);
  std::shuffle(order.begin(), order.end(), random);
  for (const unsigned block : order) {
    blockIdx = dim3(block);
    run_block(random);
  }
  memory.clear();
}

void wait_for_block() { pause(State::AtBarrier); }

uint64_t exchange(uint32_t mask, uint64_t bits, unsigned source) {
  Thread& thread = current();
  thread.mask = mask;
  const uint64_t turn = ++thread.exchanges % 2;
  thread.given[turn] = bits;
  const unsigned partner = threadIdx.x / 32 * 32 + source;
  pause(State::InExchange);
  return threads[partner]->given[turn];
}

void* block_memory(const void* key, size_t bytes, size_t alignment) {
  Shared& found = memory[key];
  if (found.bytes.empty()) {
    found.offset = alignment < 16 ? alignment : 0;
    found.bytes.assign(found.offset + bytes, static_cast<char>(0xff));
  }
  return found.bytes.data() + found.offset;
}

void check_is_global(const void* to) {
  for (const auto& [key, shared] : memory) {
    const std::less<const void*> before;
    if (before(to, shared.bytes.data()) || !before(to, shared.bytes.data() + shared.bytes.size())) continue;
    std::fprintf(stderr, "emulation: a store for global memory goes to a block's memory\n");
    std::abort();
  }
}

}  // namespace tessera::emulation
