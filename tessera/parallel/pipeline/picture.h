// A schedule as a picture in text.
#pragma once

#include <string>

#include "tessera/parallel/pipeline/simulate.h"

namespace tessera::parallel {

// A row for each rank, a column for each unit of time: `F3` is a forward of micro-batch 3, `B` a backward or
// an input gradient, `W` a weight gradient, with a letter for the stage where a rank has several; `=` goes on
// with what stands before, `.` waits. Lines end in \n.
std::string picture_of(const Schedule& schedule, const Timeline& timeline);

}  // namespace tessera::parallel
