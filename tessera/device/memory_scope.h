// Says what the tensors that a scope of code allocates are for.
#pragma once

#include "tessera/core/memory_ledger.h"
#include "tessera/device/carried_scope.h"

namespace tessera {

// Memory that is allocated until the scope ends belongs to its category.
using MemoryScope = CarriedScope<MemoryCategory>;

// The category in force on this thread; Other outside of all scopes.
inline MemoryCategory current_memory_category() {
  const MemoryCategory* category = MemoryScope::current();
  return category == nullptr ? MemoryCategory::Other : *category;
}

}  // namespace tessera
