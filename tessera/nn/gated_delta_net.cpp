#include "tessera/nn/gated_delta_net.h"

#include <string>
#include <vector>

#include <ATen/ATen.h>

#include "tessera/ops/mlp_activation.h"
#include "tessera/ops/support.h"

namespace tessera::nn {
namespace {

// Elements of a key head's query, key and values.
int64_t row_width(const GatedDeltaNetOptions& o) {
  return 2 * o.key_dim + o.num_value_heads / o.num_key_heads * o.value_dim;
}

// Maps rows of the layer, which lie head by head, to rows of the files: all queries, then keys, then values.
std::vector<StoredRows> rows_by_head(const GatedDeltaNetOptions& o) {
  const int64_t keys = o.num_key_heads * o.key_dim, values = row_width(o) - 2 * o.key_dim;
  std::vector<StoredRows> rows;
  for (int64_t head = 0; head < o.num_key_heads; ++head) {
    const int64_t begin = head * row_width(o);
    rows.push_back({begin, head * o.key_dim, o.key_dim});
    rows.push_back({begin + o.key_dim, keys + head * o.key_dim, o.key_dim});
    rows.push_back({begin + 2 * o.key_dim, 2 * keys + head * values, values});
  }
  return rows;
}

}  // namespace

GatedDeltaNet::GatedDeltaNet(const GatedDeltaNetOptions& o, int64_t layer, at::ScalarType dtype)
    : options_(o), values_(o.num_value_heads / o.num_key_heads), layer_(layer), core_(document_delta()) {
  const int64_t channels = o.num_key_heads * row_width(o), value_size = o.num_value_heads * o.value_dim;
  const auto add = [&](const std::string& name, int64_t in, int64_t out) {
    return register_module(name, std::make_shared<Linear>(in, out, /*bias=*/false, dtype));
  };
  conv1d = register_module("conv1d", std::make_shared<ShortConvolution>(channels, o.taps, dtype));
  conv1d->set_stored_rows(rows_by_head(o));
  if (o.is_joined) {
    in_proj_qkvz = add("in_proj_qkvz", o.hidden_size, channels + value_size);
    in_proj_ba = add("in_proj_ba", o.hidden_size, 2 * o.num_value_heads);
  } else {
    in_proj_qkv = add("in_proj_qkv", o.hidden_size, channels);
    in_proj_qkv->set_stored_rows(rows_by_head(o));
    in_proj_z = add("in_proj_z", o.hidden_size, value_size);
    in_proj_b = add("in_proj_b", o.hidden_size, o.num_value_heads);
    in_proj_a = add("in_proj_a", o.hidden_size, o.num_value_heads);
  }
  const auto add_values = [&](const std::string& name, const InitialValue& initial) {
    return register_module(name, std::make_shared<BareValues>(o.num_value_heads, initial, dtype));
  };
  dt_bias = add_values("dt_bias", InitialValue::ones());
  a_log = add_values("A_log", InitialValue::log_uniform(0.01, 16.0));
  norm = register_module("norm", make_norm(o.value_dim, {.eps = o.norm_eps}, dtype));
  out_proj = add("out_proj", value_size, o.hidden_size);
}

at::Tensor GatedDeltaNet::forward(const ops::Activation& x, const SequenceContext& context) {
  return run(x, [&](const ops::Activation& in) { return mix(in, context); });
}

GatedDeltaNet::Projected GatedDeltaNet::project(const ops::Activation& x) const {
  const int64_t width = row_width(options_);
  if (in_proj_qkvz == nullptr) {
    const auto made = forward_all(x, {in_proj_qkv.get(), in_proj_z.get(), in_proj_b.get(), in_proj_a.get()});
    return {made[0].view({made[0].size(0), made[0].size(1) / width, width}), made[1], made[2], made[3]};
  }
  const auto made = forward_all(x, {in_proj_qkvz.get(), in_proj_ba.get()});
  const int64_t tokens = made[0].size(0), heads = made[1].size(1) / (2 * values_),
                gates = values_ * options_.value_dim;
  const at::Tensor by_head = made[0].view({tokens, heads, width + gates}),
                   pairs = made[1].view({tokens, heads, 2, values_});
  return {by_head.narrow(2, 0, width), by_head.narrow(2, width, gates).flatten(1),
          pairs.select(2, 0).flatten(1), pairs.select(2, 1).flatten(1)};
}

at::Tensor GatedDeltaNet::mix(const ops::Activation& x, const SequenceContext& context) const {
  const auto [rows, z, b, a] = project(x);
  const at::ScalarType exact = ops::compute_type(rows.scalar_type());
  const at::Tensor log_decay =
      -(a_log->weight.to(exact).exp() * at::softplus(a.to(exact) + dt_bias->weight.to(exact)));
  const at::Tensor read = core_->read({rows, log_decay, at::sigmoid(b.to(exact))}, conv1d->taps(),
                                      {options_.key_dim, options_.value_dim}, context, layer_);
  return out_proj->forward(
      ops::mlp_activation(ops::Nonlinearity::Silu, {z.contiguous(), norm->forward(read).flatten(1)}));
}

}  // namespace tessera::nn
