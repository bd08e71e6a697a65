// Counts the memory that tensors of the meta device would take.
#pragma once

namespace tessera {

// From the first call on, every tensor of the meta device counts in the memory ledger (core/memory_ledger.h)
// while one is running, as a tensor of the host's memory does.
void count_meta_memory();

}  // namespace tessera
