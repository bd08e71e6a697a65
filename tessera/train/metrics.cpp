#include "tessera/train/metrics.h"

#include <algorithm>

#include "tessera/core/error.h"

namespace tessera::train {
void MetricsWindow::add(const StepMetrics& step) {
  const StepMetrics before = sum_;
  sum_ = step;
  sum_.loss = before.loss + step.loss * static_cast<double>(step.label_tokens);
  sum_.tokens += before.tokens;
  sum_.label_tokens += before.label_tokens;
  sum_.step_s += before.step_s;
  products_s_ += step.sol * step.step_s;
  ++num_steps_;
}

StepMetrics MetricsWindow::take() {
  TESSERA_ASSERT(num_steps_ > 0, "a window without steps");
  StepMetrics line = sum_;
  line.loss = sum_.loss / static_cast<double>(std::max<int64_t>(1, sum_.label_tokens));
  line.tokens_per_s = static_cast<double>(sum_.tokens) / sum_.step_s;
  line.sol = products_s_ / sum_.step_s;
  line.step_s = sum_.step_s / static_cast<double>(num_steps_);
  *this = MetricsWindow();
  return line;
}

}  // namespace tessera::train
