#include "tessera/generation/occurred_tokens.h"

#include <algorithm>

#include <ATen/ATen.h>

#include "tessera/core/error.h"

namespace tessera::generation {

int64_t OccurredTokens::row_of(int64_t sequence) {
  TESSERA_ASSERT(cache_.has(sequence), "the cache has no such sequence");
  constexpr int64_t kFewest = 8;
  const auto first = sequences_.begin() + kNobodys + 1;
  auto found = std::find(first, sequences_.end(), sequence);
  if (found != sequences_.end()) return found - sequences_.begin();
  // Takes the first row that is free: never given, or of a sequence that the cache has no more.
  found = std::find_if(first, sequences_.end(),
                       [this](int64_t own) { return own == kNobody || !cache_.has(own); });
  const int64_t row = found - sequences_.begin();
  if (found == sequences_.end()) {
    // Doubles the number of rows.
    const int64_t present = has_occurred_.defined() ? has_occurred_.size(0) : 0;
    const auto options = at::TensorOptions(cache_.options().device).dtype(at::kBool);
    const at::Tensor more = at::zeros({std::max(kFewest, 2 * present), vocabulary_}, options);
    if (present > 0) more.narrow(0, 0, present).copy_(has_occurred_);
    has_occurred_ = more;
    sequences_.resize(static_cast<size_t>(more.size(0)), kNobody);
  }
  clear(row);
  sequences_[static_cast<size_t>(row)] = sequence;
  return row;
}

void OccurredTokens::add(const at::Tensor& rows, const at::Tensor& ids) {
  has_occurred_.view({-1}).index_fill_(0, rows * vocabulary_ + ids, true);
}

}  // namespace tessera::generation
