// The parts of spans of attention in which some query sees some key.
#pragma once

#include <cstdint>
#include <vector>

#include "tessera/ops/attention_formula.h"

namespace tessera::ops {

// A span without the queries that see no key and the keys that no query sees.
struct SeenSpan {
  int64_t first_query, queries, first_key, keys;
  kernels::KeyBand band;  // band of these queries and keys
  int64_t ahead;          // as that of AttentionSpan
};

// Returns the seen part of each span; spans in which no query sees a key are left out.
std::vector<SeenSpan> seen_spans(const std::vector<AttentionSpan>& spans, const AttentionFormula& formula);

}  // namespace tessera::ops
