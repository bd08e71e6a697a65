#include "tessera/optim/schedule.h"

#include <algorithm>
#include <cmath>

namespace tessera::optim {

double Schedule::at(int64_t step) const {
  if (step < warmup_steps)
    return peak * static_cast<double>(step) / static_cast<double>(std::max<int64_t>(1, warmup_steps));
  const double progress = static_cast<double>(step - warmup_steps) /
                          static_cast<double>(std::max<int64_t>(1, total_steps - warmup_steps));
  switch (kind) {
    case ScheduleKind::Constant: return peak;
    case ScheduleKind::Linear: return peak * (min_ratio + (1.0 - min_ratio) * std::max(0.0, 1.0 - progress));
    case ScheduleKind::Cosine:
      return peak * (min_ratio + (1.0 - min_ratio) *
                                     std::max(0.0, 0.5 * (1.0 + std::cos(M_PI * std::min(1.0, progress)))));
  }
  return peak;
}

}  // namespace tessera::optim
