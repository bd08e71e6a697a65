#include "tessera/ops/attention_formula.h"

#include "tessera/core/check_argument.h"

namespace tessera::ops {

void AttentionFormula::check() const {
  TESSERA_CHECK_ARGUMENT(scale > 0 && window >= 0 && soft_cap >= 0,
                         "attention: scale above 0, window and soft_cap not negative");
}

at::IValue AttentionFormula::to_value() const {
  return c10::ivalue::Tuple::create({scale, is_causal, window, soft_cap});
}

AttentionFormula AttentionFormula::from_value(const at::IValue& value) {
  const auto& parts = value.toTupleRef().elements();
  return {parts[0].toDouble(), parts[1].toBool(), parts[2].toInt(), parts[3].toDouble()};
}

std::vector<AttentionSpan> spans_of_documents(const std::vector<int64_t>& starts) {
  std::vector<AttentionSpan> spans;
  for (size_t i = 0; i + 1 < starts.size(); ++i) {
    const int64_t length = starts[i + 1] - starts[i];
    if (length > 0) spans.push_back({starts[i], length, starts[i], length, 0});
  }
  return spans;
}

kernels::KeyBand key_band(const AttentionSpan& span, const AttentionFormula& formula) {
  constexpr int64_t kAll = kernels::kUnbounded;
  const int64_t reach = formula.window > 0 && formula.window < kAll ? formula.window - 1 : kAll;
  return {span.ahead - reach, span.ahead + (formula.is_causal ? 0 : reach), span.keys};
}

}  // namespace tessera::ops
