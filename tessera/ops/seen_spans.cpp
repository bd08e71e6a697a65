#include "tessera/ops/seen_spans.h"

namespace tessera::ops {

std::vector<SeenSpan> seen_spans(const std::vector<AttentionSpan>& spans, const AttentionFormula& formula) {
  std::vector<SeenSpan> seen;
  for (const AttentionSpan& span : spans) {
    kernels::KeyBand band = key_band(span, formula);
    const auto [query, end_query] = band.queries_that_see(span.queries);
    if (query >= end_query) continue;
    band = band.from(query, 0);
    const auto [key, end_key] = band.keys_seen(end_query - query);
    seen.push_back({span.first_query + query, end_query - query, span.first_key + key, end_key - key,
                    band.from(0, key).of_first(end_key - key), span.ahead + query - key});
  }
  return seen;
}

}  // namespace tessera::ops
