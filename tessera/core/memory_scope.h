// What the tensors are for that a scope of code allocates.
#pragma once

#include "tessera/core/carried_scope.h"
#include "tessera/core/memory_ledger.h"

namespace tessera {

// What is allocated until the scope ends belongs to its category.
using MemoryScope = CarriedScope<MemoryCategory>;

// Other outside of all scopes.
inline MemoryCategory current_memory_category() {
  const MemoryCategory* category = MemoryScope::current();
  return category == nullptr ? MemoryCategory::Other : *category;
}

}  // namespace tessera
