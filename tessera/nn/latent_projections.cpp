#include "tessera/nn/latent_projections.h"

#include <string>
#include <vector>

#include <ATen/ATen.h>

namespace tessera::nn {
namespace {

// Maps rows of the queries to rows of the files, which have the rotated ones of each head at its end.
std::vector<StoredRows> rotated_first(int64_t num_heads, int64_t head_dim, int64_t rope_dim) {
  const int64_t rest = head_dim - rope_dim;
  std::vector<StoredRows> rows;
  for (int64_t head = 0; head < num_heads; ++head) {
    const int64_t begin = head * head_dim;
    rows.push_back({begin, begin + rest, rope_dim});
    rows.push_back({begin + rope_dim, begin, rest});
  }
  return rows;
}

at::Tensor padded(const at::Tensor& x, int64_t width) {
  return x.size(-1) == width ? x : at::constant_pad_nd(x, {0, width - x.size(-1)});
}

}  // namespace

LatentProjections::LatentProjections(torch::nn::Module& parent, const LatentOptions& options,
                                     int64_t hidden_size, int64_t num_heads, int64_t head_dim,
                                     at::ScalarType dtype)
    : options_(options), head_dim_(head_dim) {
  const auto add = [&](const std::string& name, int64_t in, int64_t out, bool bias) {
    return parent.register_module(name, std::make_shared<Linear>(in, out, bias, dtype));
  };
  const auto add_norm = [&](const std::string& name, int64_t size) {
    return parent.register_module(name, make_norm(size, options.norm, dtype));
  };
  if (options.q_rank) {
    q_a_ = add("q_a_proj", hidden_size, *options.q_rank, options.bias);
    q_norm_ = add_norm("q_a_layernorm", *options.q_rank);
  }
  q_b_ = add(options.q_rank ? "q_b_proj" : "q_proj", options.q_rank.value_or(hidden_size),
             num_heads * head_dim, false);
  q_b_->set_stored_rows(rotated_first(num_heads, head_dim, options.rope_dim));
  kv_a_ = add("kv_a_proj_with_mqa", hidden_size, options.kv_rank + options.rope_dim, options.bias);
  kv_norm_ = add_norm("kv_a_layernorm", options.kv_rank);
  kv_b_ =
      add("kv_b_proj", options.kv_rank, num_heads * (head_dim - options.rope_dim + options.value_dim), false);
}

std::array<at::Tensor, 3> LatentProjections::operator()(const ops::Activation& x,
                                                        const Rotate& rotate) const {
  const int64_t rope = options_.rope_dim, plain = head_dim_ - rope;
  at::Tensor first, latent;
  if (q_a_ != nullptr) {
    const auto made = forward_all(x, {q_a_.get(), kv_a_.get()});
    first = q_b_->forward(q_norm_->forward(made[0]));
    latent = made[1];
  } else {
    const auto made = forward_all(x, {q_b_.get(), kv_a_.get()});
    first = made[0];
    latent = made[1];
  }
  const int64_t tokens = latent.size(0), heads = first.size(1) / head_dim_;
  const at::Tensor q = rotate(first, head_dim_).view({tokens, heads, head_dim_});
  const at::Tensor shared =
      rotate(latent.narrow(1, options_.kv_rank, rope).clone(at::MemoryFormat::Contiguous), rope).unsqueeze(1);
  const at::Tensor made =
      kv_b_->forward(kv_norm_->forward(latent.narrow(1, 0, options_.kv_rank).contiguous()))
          .view({tokens, heads, plain + options_.value_dim});
  const at::Tensor k = at::cat({shared.expand({tokens, heads, rope}), made.narrow(2, 0, plain)}, 2);
  return {padded(q, width()), padded(k, width()), padded(made.narrow(2, plain, options_.value_dim), width())};
}

}  // namespace tessera::nn
