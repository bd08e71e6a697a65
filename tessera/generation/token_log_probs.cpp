#include "tessera/generation/token_log_probs.h"

#include <algorithm>
#include <tuple>

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>

#include "tessera/core/error.h"
#include "tessera/device/device.h"
#include "tessera/device/device_copy.h"
#include "tessera/device/host_memory.h"

namespace tessera::generation {

std::vector<scoring::TokenLogProbs> token_log_probs(const at::Tensor& logits, std::span<const int64_t> rows,
                                                    std::span<const int64_t> ids, int64_t num_top) {
  TESSERA_ASSERT(rows.size() == ids.size() && num_top >= 0, "a token for each row");
  std::vector<scoring::TokenLogProbs> result(ids.size());
  if (ids.empty()) return result;
  const c10::InferenceMode inference;
  const auto there = [&](std::span<const int64_t> values) {
    return copy_to(at::tensor(c10::ArrayRef<int64_t>(values.data(), values.size()), on_host(at::kLong)),
                   logits.device());
  };
  const at::Tensor row = there(rows);
  const at::Tensor wide = logits.scalar_type() == at::kDouble ? logits : logits.to(at::kFloat);
  const at::Tensor normaliser = at::logsumexp(wide, {1}).index_select(0, row);
  const at::Tensor chosen = (wide.index({row, there(ids)}) - normaliser).to(on_host(at::kDouble));
  const auto value = host_span<const double>(chosen);
  for (size_t i = 0; i < ids.size(); ++i) result[i].log_prob = value[i];
  const int64_t count = std::min(num_top, wide.size(1));
  if (count == 0) return result;
  // A row that several tokens share is sorted once.
  const auto [best, best_ids] = at::topk(wide, count, 1);
  const at::Tensor tops =
      (best.index_select(0, row) - normaliser.unsqueeze(1)).to(on_host(at::kDouble)).contiguous();
  const at::Tensor top_ids = best_ids.index_select(0, row).to(on_host(at::kLong)).contiguous();
  const auto top = host_span<const double>(tops);
  const auto top_id = host_span<const int64_t>(top_ids);
  for (size_t i = 0; i < ids.size(); ++i) {
    auto& entries = result[i].top;
    for (size_t k = i * static_cast<size_t>(count); k < (i + 1) * static_cast<size_t>(count); ++k)
      entries.push_back({top_id[k], top[k]});
    std::ranges::sort(entries, [](const auto& a, const auto& b) {
      return a.log_prob != b.log_prob ? a.log_prob > b.log_prob : a.id < b.id;
    });
  }
  return result;
}

}  // namespace tessera::generation
