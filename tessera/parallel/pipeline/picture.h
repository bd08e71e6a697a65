// Draws a schedule in text.
#pragma once

#include <string>

#include "tessera/parallel/pipeline/simulate.h"

namespace tessera::parallel {

// Returns a picture with a row for each rank and a column for each unit of time. `F3` is a forward of
// micro-batch 3, `B` a backward or an input gradient, `W` a weight gradient, followed by a letter for the
// stage if a rank has several; `=` continues the action before it, `.` is waiting. Lines end in \n.
std::string picture_of(const Schedule& schedule, const Timeline& timeline);

}  // namespace tessera::parallel
