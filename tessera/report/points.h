// Fewer and smoother points of a line.
#pragma once

#include <cstddef>

#include "tessera/report/run_record.h"

namespace tessera::report {

// Gives at most about `count` of the points, in order: the lowest and the highest of each stretch.
Points thin(const Points& points, size_t count);

// Gives at most about `count` of the points, at equal distances, and the last one always.
Points sample(const Points& points, size_t count);

// Gives the mean of each of at most `count` stretches of points, at the last step of the stretch. Series of
// the same steps get the same stretches.
Points average(const Points& points, size_t count);

// Gives the mean of the points up to each one, where older ones count for exponentially less: half after
// `half_life` points.
Points smooth(const Points& points, double half_life);

}  // namespace tessera::report
