// Counts the memory that tensors of the meta device would take.
#pragma once

namespace tessera {

// Makes every tensor of the meta device that is made from now on count in the memory ledger
// (core/memory_ledger.h) while that is on, as a tensor of the host's memory does.
void count_meta_memory();

}  // namespace tessera
