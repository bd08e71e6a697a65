#include "tessera/nn/attention.h"

#include <cmath>
#include <optional>

#include <ATen/ATen.h>

#include "tessera/core/error.h"
#include "tessera/nn/alibi.h"
#include "tessera/nn/head_norm.h"
#include "tessera/nn/unscaled_norm.h"
#include "tessera/ops/rope.h"

namespace tessera::nn {
namespace {

// Maps rows of the layer to rows of the files: the files hold all of q, then k, then v; the layer holds, for
// one key/value head after the other, its `group` query heads, its key and its value.
std::vector<StoredRows> rows_by_head(int64_t num_kv_heads, int64_t group, int64_t head_dim) {
  const int64_t q_size = group * head_dim, k_begin = num_kv_heads * q_size;
  const int64_t v_begin = k_begin + num_kv_heads * head_dim;
  std::vector<StoredRows> rows;
  for (int64_t head = 0; head < num_kv_heads; ++head) {
    const int64_t begin = head * (group + 2) * head_dim;
    rows.push_back({begin, head * q_size, q_size});
    rows.push_back({begin + q_size, k_begin + head * head_dim, head_dim});
    rows.push_back({begin + q_size + head_dim, v_begin + head * head_dim, head_dim});
  }
  return rows;
}

}  // namespace

Attention::Attention(const AttentionOptions& o, int64_t layer, at::ScalarType dtype)
    : head_dim_(o.head_dim),
      group_(o.num_heads / o.num_kv_heads),
      layer_(layer),
      rotary_(o.rotary),
      shared_keys_(o.shared_keys),
      is_interleaved_(o.is_interleaved),
      has_output_gate_(o.has_output_gate),
      has_key_bias_(o.has_key_bias),
      scales_bias_(o.scales_bias),
      chunk_(o.chunk),
      clip_(o.clip),
      qk_norm_(o.qk_norm),
      formula_{o.scale.value_or(1.0 / std::sqrt(static_cast<double>(o.head_dim))), o.is_causal, o.window,
               o.soft_cap},
      core_(document_attention()) {
  const int64_t q_size = o.num_heads * o.head_dim, kv_size = o.num_kv_heads * o.head_dim;
  const auto add = [&](const std::string& name, int64_t in, int64_t out, bool bias) {
    return register_below(*this, name, std::make_shared<Linear>(in, out, bias, dtype));
  };
  if (o.latent) {
    latent_.emplace(*this, *o.latent, o.hidden_size, o.num_heads, o.head_dim, dtype);
  } else if (o.qkv.empty()) {
    q_proj = add(o.q, o.hidden_size, o.has_output_gate ? 2 * q_size : q_size, o.qkv_bias);
    if (!o.reads_keys()) k_proj = add(o.k, o.hidden_size, kv_size, o.qkv_bias);
    if (!o.v.empty() && !o.reads_keys()) v_proj = add(o.v, o.hidden_size, kv_size, o.qkv_bias);
    TESSERA_ASSERT(
        v_proj != nullptr || o.reads_keys() || (o.qk_norm && !o.qk_norm->is_after_rotation),
        "values from the keys' projection need a norm of the keys, since the rotation works in place");
  } else {
    qkv_proj = add(o.qkv, o.hidden_size, q_size + 2 * kv_size, o.qkv_bias);
    if (!o.is_stored_by_head) qkv_proj->set_stored_rows(rows_by_head(o.num_kv_heads, group_, head_dim_));
  }
  TESSERA_ASSERT(!reads_keys() || (o.shared_keys >= 0 && o.clip == 0.0 && !o.has_key_bias),
                 "keys of another layer are read as they are");
  dropout = add_attention_dropout(*this, o.dropout, o.num_heads,
                                  "block." + std::to_string(layer) + ".attention_dropout");
  o_proj = add(o.o, o.latent ? o.num_heads * o.latent->value_dim : q_size, o.hidden_size, o.output_bias);
  if (o.has_sinks)
    sinks =
        register_module("sinks", std::make_shared<BareValues>(o.num_heads, InitialValue::normal(), dtype));
  if (!o.qk_norm) return;
  const auto add_norm = [&](const std::string& name, int64_t heads) {
    if (o.qk_norm->over == QkNormOptions::Over::EachHead) {
      return register_module<Norm>(name, std::make_shared<HeadNorm>(heads, o.head_dim, o.qk_norm->norm, dtype,
                                                                    o.qk_norm->stored_list));
    }
    const bool joins = o.qk_norm->over == QkNormOptions::Over::Projection;
    return register_module(name, make_norm(joins ? heads * o.head_dim : o.head_dim, o.qk_norm->norm, dtype));
  };
  q_norm = add_norm(o.qk_norm->q, o.num_heads);
  if (reads_keys()) return;
  k_norm = add_norm(o.qk_norm->k, o.num_kv_heads);
  if (o.qk_norm->norms_values) v_norm = std::make_shared<UnscaledNorm>(o.qk_norm->norm.eps);
}

int64_t Attention::kv_size() const {
  if (reads_keys()) {
    // A rank may have a part of the queries that share a head.
    const int64_t queries = q_proj->out_features() / (has_output_gate_ ? 2 : 1) / head_dim_;
    return (queries + group_ - 1) / group_ * head_dim_;
  }
  return qkv_proj == nullptr ? k_proj->out_features() : qkv_proj->out_features() / (group_ + 2);
}

CachedHeads Attention::cached_heads() const {
  if (latent_) return {latent_->heads(), latent_->width(), formula_.window};
  return {kv_size() / head_dim_, head_dim_ + (has_key_bias_ ? kAlibiElements : 0), formula_.window};
}

at::Tensor Attention::forward(const ops::Activation& x, const SequenceContext& context) {
  return run(x, [&](const ops::Activation& in) {
    return latent_ ? run_latent(in, context) : run_heads(in, context);
  });
}

const RotaryTable* Attention::rotary_table(const SequenceContext& context) const {
  if (rotary_ < 0 || rotary_ >= std::ssize(context.rotary)) return nullptr;
  return &context.rotary[static_cast<size_t>(rotary_)];
}

at::Tensor Attention::run_latent(const ops::Activation& x, const SequenceContext& context) const {
  const RotaryTable* const table = rotary_table(context);
  auto [q, k, v] = (*latent_)(x, [&](const at::Tensor& part, int64_t elements) {
    if (table == nullptr) return part;
    return ops::apply_rope_(part, table->cos, table->sin, {elements, is_interleaved_});
  });
  if (table != nullptr && table->query_scale.defined()) q = q * table->query_scale.to(q.scalar_type());
  const at::Tensor out = core_->attend(q, k, v, context, layer_, formula_of(q));
  return o_proj->forward(out.narrow(2, 0, latent_->options().value_dim).flatten(1));
}

std::array<at::Tensor, 4> Attention::project(const ops::Activation& x) const {
  if (qkv_proj == nullptr) {
    const auto made = reads_keys()        ? std::vector<at::Tensor>{q_proj->forward(x), {}}
                      : v_proj == nullptr ? forward_all(x, {q_proj.get(), k_proj.get()})
                                          : forward_all(x, {q_proj.get(), k_proj.get(), v_proj.get()});
    if (!has_output_gate_) return {made[0], made[1], made.back(), {}};
    const at::Tensor by_head =
        made[0].view({made[0].size(0), made[0].size(1) / (2 * head_dim_), 2, head_dim_});
    // The rotation works in place, so the queries are copied.
    return {by_head.select(2, 0).clone(at::MemoryFormat::Contiguous), made[1], made.back(),
            by_head.select(2, 1)};
  }
  const at::Tensor made = qkv_proj->forward(x);
  const int64_t heads = kv_size() / head_dim_;
  const at::Tensor by_head = made.view({made.size(0), heads, group_ + 2, head_dim_});
  return {by_head.narrow(2, 0, group_).reshape({made.size(0), heads * group_, head_dim_}),
          by_head.select(2, group_),
          by_head.select(2, group_ + 1),
          {}};
}

at::Tensor Attention::in_heads(const at::Tensor& y) const {
  return y.dim() == 3 ? y : y.view({y.size(0), y.size(1) / head_dim_, head_dim_});
}

at::Tensor Attention::normed(const Norm& norm, const at::Tensor& x) const {
  return norm.forward(qk_norm_->over == QkNormOptions::Over::Projection ? x.flatten(1) : in_heads(x));
}

at::Tensor Attention::rotated(const at::Tensor& x, const RotaryTable& table) const {
  // The rotation works in place, so views of the one product of qkv_proj are copied first.
  const at::Tensor own = qkv_proj == nullptr ? x : x.clone(at::MemoryFormat::Contiguous);
  return ops::apply_rope_(own, table.cos, table.sin, {head_dim_, is_interleaved_});
}

at::Tensor Attention::run_heads(const ops::Activation& x, const SequenceContext& context) const {
  auto [q, k, v, gate] = project(x);
  // The gradients that leave the norms and the rotation in the backward are operands of the projections'
  // products, so these ops run in their product type; not with qkv_proj, since its outputs are reordered by
  // heads in between.
  std::optional<ops::ProductScope> products(qkv_proj == nullptr ? o_proj->product_type()
                                                                : ops::ProductType::OfOperands);
  if (clip_ > 0.0) {
    for (at::Tensor* const part : {&q, &k, &v}) *part = part->clamp(-clip_, clip_);
  }
  const auto norm = [&](bool is_after_rotation) {
    if (q_norm == nullptr || qk_norm_->is_after_rotation != is_after_rotation) return;
    q = normed(*q_norm, q);
    if (k_norm != nullptr) k = normed(*k_norm, k);
  };
  norm(false);
  if (v_norm != nullptr) v = v_norm->forward(in_heads(v));
  if (const RotaryTable* const table = rotary_table(context)) {
    if (table->cos.defined()) {
      q = rotated(q, *table);
      if (k.defined()) k = rotated(k, *table);
    }
    if (table->query_scale.defined()) q = in_heads(q) * table->query_scale.to(q.scalar_type());
  }
  norm(true);
  products.reset();
  std::array<at::Tensor, 3> heads = {in_heads(q), {}, {}};
  if (k.defined()) {
    heads[1] = in_heads(k);
    heads[2] = in_heads(v);
  }
  if (shared_keys_ >= 0) share_keys(heads, context);
  const bool is_biased = has_key_bias_ && context.key_bias.defined();
  if (is_biased) heads = with_biases(heads[0], heads[1], heads[2], own_biases(context.key_bias));
  at::Tensor out = core_->attend(heads[0], heads[1], heads[2], chunk_ == 0 ? context : in_chunks(context),
                                 layer_, formula_of(heads[0]));
  if (is_biased) out = out.narrow(2, 0, head_dim_);
  if (gate.defined()) out = out * at::sigmoid(gate);
  return o_proj->forward(out.reshape({out.size(0), out.size(1) * head_dim_}));
}

void Attention::share_keys(std::array<at::Tensor, 3>& heads, const SequenceContext& context) const {
  SharedValues& shared = *context.shared_keys.at(static_cast<size_t>(shared_keys_));
  if (!reads_keys()) {
    heads[0] = shared.give(heads[0], {heads[1], heads[2]});
    return;
  }
  // A cache gets these values of the new tokens a second time.
  const auto read = shared.read(heads[0], 0, 2);
  heads = {read[0], read[1], read[2]};
}

int64_t Attention::first_head() const {
  if (qkv_proj != nullptr) return qkv_proj->first_output() / ((group_ + 2) * head_dim_) * group_;
  const Linear& queries = latent_ ? latent_->queries() : *q_proj;
  return queries.first_output() / ((has_output_gate_ ? 2 : 1) * head_dim_);
}

ops::AttentionFormula Attention::formula_of(const at::Tensor& q) const {
  ops::AttentionFormula formula = formula_;
  if (sinks != nullptr) formula.sinks = sinks->weight;
  if (dropout != nullptr) formula.dropout = dropout->of(q, first_head());
  return formula;
}

at::Tensor Attention::own_biases(const at::Tensor& key_bias) const {
  const at::Tensor own = key_bias.narrow(1, first_head(), kv_size() / head_dim_);
  return scales_bias_ ? own : own / formula_.scale;
}

SequenceContext Attention::in_chunks(const SequenceContext& context) const {
  SequenceContext cut = context;
  if (context.cache != nullptr) return cut;
  cut.document_starts.clear();
  for (size_t i = 0; i + 1 < context.document_starts.size(); ++i) {
    const int64_t first = context.document_starts[i], end = context.document_starts[i + 1];
    for (int64_t begin = first; begin == first || begin < end; begin += chunk_)
      cut.document_starts.push_back(begin);
  }
  cut.document_starts.push_back(context.document_starts.back());
  if (!context.part || cut.document_starts.size() == context.document_starts.size()) return cut;
  throw Error(ErrorKind::Config, "CONTEXT-PARALLEL",
              "attention in chunks is not spread over context parallel ranks for documents of several chunks")
      .need("documents of at most " + std::to_string(chunk_) + " tokens")
      .hint("shorten them, or leave out context_parallel_size");
}

}  // namespace tessera::nn
