// LibTorch's CPU memory, from a pool that keeps the pages of large tensors between uses.
#pragma once

#include "tessera/core/page_pool.h"

namespace tessera {

// Has LibTorch take the memory of CPU tensors of 64 KiB and more from a PagePool, which saves the page faults
// and the clearing of pages that a training step otherwise pays for every tensor, every time. Smaller ones,
// and what the pool cannot give, come from LibTorch's own allocator, whose errors stay the same. Call it
// once, early in main(), before threads are started; tensors made before keep their memory. Later calls do
// nothing.
//
// Every tensor is also counted in the memory ledger (memory_ledger.h) while that is on, pool or not.
//
// Returns whether the pool is in use. It is not under AddressSanitizer (which would not see overflows), where
// the address space is limited (ulimit -v), and where the environment says TESSERA_CACHING_ALLOCATOR=0.
// Throws E-CONFIG-ENVIRONMENT where that variable holds anything but 0 or 1.
bool install_cpu_allocator();

// Gives the unused pages of the pool back to the system. Call it after a phase that needed more memory than
// what follows.
void trim_cpu_allocator();

// The statistics of the pool; zeros if it is not in use.
PagePoolStats cpu_allocator_stats();

}  // namespace tessera
