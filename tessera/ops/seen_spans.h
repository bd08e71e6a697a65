// What of a span of attention anybody sees.
#pragma once

#include <cstdint>
#include <vector>

#include "tessera/ops/attention_formula.h"

namespace tessera::ops {

// A span without the queries that see no key and the keys that no query sees.
struct SeenSpan {
  int64_t first_query, queries, first_key, keys;
  kernels::KeyBand band;  // of these queries and keys
};

// Those of which anything is left.
std::vector<SeenSpan> seen_spans(const std::vector<AttentionSpan>& spans, const AttentionFormula& formula);

}  // namespace tessera::ops
