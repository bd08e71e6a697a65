// Refuses ranks that were started with different recipes or programs, which must not train together.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "tessera/comm/communicator.h"
#include "tessera/config/recipe.h"

namespace tessera::train {

// Throws Error(Config), on every rank alike, unless all ranks run the same `program`: its name and version,
// and those of the libraries that it computes with. Collective.
void check_same_program(const std::string& program, comm::Communicator& world);

// Throws Error(Config), on every rank alike, unless all ranks hold the same resolved recipe; names the first
// rank that differs from rank 0, and the key. Collective: call it before any other use of the recipe.
void check_same_recipe(const config::Recipe& recipe, comm::Communicator& world);

// Begins what the ranks do together by a recipe: makes the two checks above, and sets for this process what
// the recipe says of deterministic computing and of the longest wait in a collective. Ranks with another
// program or recipe would make other collectives, so it comes before all others. Collective.
void agree_on_start(const config::Recipe& recipe, comm::Communicator& world);

// Returns the first rank whose text is another than rank 0's; nothing where there is none.
std::optional<size_t> first_other(const std::vector<std::string>& texts);

}  // namespace tessera::train
