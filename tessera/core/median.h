// The middle of some measurements.
#pragma once

#include <vector>

namespace tessera {

// The middle value in order, or the mean of the middle two; 0 for none.
double median(std::vector<double> values);

}  // namespace tessera
