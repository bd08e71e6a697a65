#include "tessera/nn/virtual_rows.h"

#include <ATen/ATen.h>

namespace tessera::nn {

VirtualRows::VirtualRows(int64_t first_id, int64_t count, int64_t hidden_size, at::ScalarType dtype)
    : first_id_(first_id), count_(count) {
  weight = register_parameter(
      "weight", at::empty({count, hidden_size}, at::TensorOptions().dtype(dtype).device(at::kMeta)));
}

at::Tensor VirtualRows::on_tokens(const at::Tensor& y, const at::Tensor& input_ids, bool has_them) const {
  const at::Tensor row = input_ids - first_id_;
  // Every rank computes with the rows, so that all of them have a gradient.
  const at::Tensor rows =
      weight.index_select(0, row.clamp_min(0)).to(y.scalar_type()) * (has_them ? 1.0 : 0.0);
  return at::where(row.ge(0).unsqueeze(1), rows, y);
}

at::Tensor VirtualRows::without_own(const at::Tensor& input_ids) const {
  return input_ids.masked_fill(input_ids.ge(first_id_), 0);
}

}  // namespace tessera::nn
