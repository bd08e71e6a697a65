#include "tessera/nn/token_rows.h"

#include <ATen/ATen.h>

#include "tessera/core/error.h"
#include "tessera/device/host_memory.h"

namespace tessera::nn {

TokenRows::TokenRows(std::vector<int64_t> ids, int64_t num_embeddings, int64_t hidden_size,
                     at::ScalarType dtype)
    : ids_(std::move(ids)), num_embeddings_(num_embeddings) {
  for (const int64_t id : ids_) TESSERA_ASSERT(id >= 0 && id < num_embeddings, "ids of the table");
  const auto options = at::TensorOptions().dtype(dtype).device(at::kMeta);
  rows = register_parameter("trainable_tokens_delta",
                            at::empty({static_cast<int64_t>(ids_.size()), hidden_size}, options));
}

at::Tensor TokenRows::on_tokens(const at::Tensor& y, const at::Tensor& input_ids, const Part& part) const {
  if (!row_of_.defined()) {
    const at::Tensor table = at::full({num_embeddings_}, -1, on_host(at::kLong));
    for (size_t i = 0; i < ids_.size(); ++i)
      host_span<int64_t>(table)[static_cast<size_t>(ids_[i])] = static_cast<int64_t>(i);
    row_of_ = table;
  }
  row_of_ = row_of_.to(input_ids.device());
  const at::Tensor row = row_of_.index_select(0, input_ids);
  at::Tensor is_own = row.ge(0);
  if (part.size < num_embeddings_)
    is_own = is_own.logical_and(input_ids.ge(part.first)).logical_and(input_ids.lt(part.first + part.size));
  return at::where(is_own.unsqueeze(1), rows.index_select(0, row.clamp_min(0)), y);
}

at::Tensor TokenRows::on_table(const at::Tensor& table, const Part& part) const {
  const auto [places, own] = rows_in(part, table.device());
  if (places.numel() == 0) return table;
  return table.index_copy(0, places, rows.index_select(0, own));
}

std::pair<at::Tensor, at::Tensor> TokenRows::rows_in(const Part& part, at::Device device) const {
  std::vector<int64_t> places, own;
  for (size_t i = 0; i < ids_.size(); ++i) {
    if (ids_[i] < part.first || ids_[i] >= part.first + part.size) continue;
    places.push_back(ids_[i] - part.first);
    own.push_back(static_cast<int64_t>(i));
  }
  const auto options = on_host(at::kLong);
  return {at::tensor(places, options).to(device), at::tensor(own, options).to(device)};
}

}  // namespace tessera::nn
