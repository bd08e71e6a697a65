#include "tessera/ops/attention_formula.h"

#include <ATen/ATen.h>

#include "tessera/core/check_argument.h"
#include "tessera/ops/kernels/attention.h"

namespace tessera::ops {
namespace {

// Returns the lower 32 bits of each element.
at::Tensor low_bits(const at::Tensor& x) { return x.bitwise_and(int64_t{0xFFFFFFFF}); }

}  // namespace

void AttentionFormula::check() const {
  TESSERA_CHECK_ARGUMENT(scale > 0 && window >= 0 && soft_cap >= 0,
                         "attention: scale above 0, window and soft_cap not negative");
  TESSERA_CHECK_ARGUMENT(dropout.probability >= 0 && dropout.probability < 1 &&
                             (dropout.probability == 0 || dropout.draws.defined()),
                         "attention: dropout from [0, 1), and a draw for each query and head");
}

AttentionFormula AttentionFormula::of_queries(int64_t first, int64_t count) const {
  AttentionFormula part = *this;
  if (dropout.draws.defined()) part.dropout.draws = dropout.draws.narrow(0, first, count);
  return part;
}

at::IValue AttentionFormula::to_value() const {
  return c10::ivalue::Tuple::create({scale, is_causal, window, soft_cap, dropout.probability, dropout.draws});
}

AttentionFormula AttentionFormula::from_value(const at::IValue& value) {
  const std::vector<at::IValue> parts = value.toTupleRef().elements().vec();
  return {.scale = parts[0].toDouble(),
          .is_causal = parts[1].toBool(),
          .window = parts[2].toInt(),
          .soft_cap = parts[3].toDouble(),
          .dropout = {parts[4].toDouble(), parts[5].toTensor()}};
}

std::vector<AttentionSpan> spans_of_documents(const std::vector<int64_t>& starts) {
  std::vector<AttentionSpan> spans;
  for (size_t i = 0; i + 1 < starts.size(); ++i) {
    const int64_t length = starts[i + 1] - starts[i];
    if (length > 0) spans.push_back({starts[i], length, starts[i], length, 0});
  }
  return spans;
}

// The arithmetic is that of kernels::pair_word() on int64 tensors, of whose elements the lower 32 bits count.
at::Tensor dropout_factors(const AttentionDropout& dropout, const AttentionSpan& span, at::ScalarType type) {
  const at::Tensor draws = dropout.draws.narrow(0, span.first_query, span.queries).t().unsqueeze(2);
  const at::Tensor places = at::arange(span.ahead, span.ahead + span.queries, draws.options()).unsqueeze(1),
                   distances = places - at::arange(span.keys, draws.options());
  const at::Tensor high = low_bits(draws.bitwise_right_shift(32));
  at::Tensor x = low_bits(draws + distances * int64_t{kernels::kPairStep});
  x = low_bits(x.bitwise_xor(x.bitwise_right_shift(16)) * int64_t{kernels::kPairFactors[0]})
          .bitwise_xor(high);
  x = low_bits(x.bitwise_xor(x.bitwise_right_shift(15)) * int64_t{kernels::kPairFactors[1]});
  return x.ge(int64_t{dropout.threshold()}).to(type).mul_(dropout.factor());
}

kernels::KeyBand key_band(const AttentionSpan& span, const AttentionFormula& formula) {
  constexpr int64_t kAll = kernels::kUnbounded;
  const int64_t reach = formula.window > 0 && formula.window < kAll ? formula.window - 1 : kAll;
  return {span.ahead - reach, span.ahead + (formula.is_causal ? 0 : reach), span.keys};
}

}  // namespace tessera::ops
