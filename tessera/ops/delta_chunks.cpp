#include "tessera/ops/delta_chunks.h"

#include <cmath>
#include <limits>

#include <ATen/ATen.h>

#include "tessera/ops/support.h"

namespace tessera::ops {
namespace {

constexpr double kNormEps = 1e-6;

at::Tensor transposed(const at::Tensor& x) { return x.transpose(-2, -1); }

// Returns exp(x) where `mask` holds, and 0 elsewhere. Elsewhere exp(x) may be infinite.
at::Tensor masked_exp(const at::Tensor& x, const at::Tensor& mask) {
  return x.masked_fill(mask.logical_not(), -std::numeric_limits<double>::infinity()).exp_();
}

at::Tensor inverse_norm(const at::Tensor& x) { return at::rsqrt(x.square().sum(-1, true) + kNormEps); }

// Sums the value heads of each key head: [chunks, value heads, ...] -> [chunks, key heads, ...].
at::Tensor sum_to_key_heads(const at::Tensor& x, int64_t values) {
  return values == 1 ? x : x.unflatten(1, {x.size(1) / values, values}).sum(2);
}

// Returns the first value head of each key head.
at::Tensor first_heads(const at::Tensor& x, int64_t values) {
  return values == 1 ? x : x.unflatten(1, {x.size(1) / values, values}).select(2, 0);
}

// Returns the gradient of what a norm made `normed` of, with the factor that it multiplied by.
at::Tensor through_norm(const at::Tensor& grad, const at::Tensor& normed, const at::Tensor& factor) {
  return (grad - normed * (grad * normed).sum(-1, true)) * factor;
}

}  // namespace

at::Tensor in_chunks(const at::Tensor& x, int64_t chunks) {
  const int64_t missing = chunks * kDeltaChunk - x.size(0);
  std::vector<int64_t> padding(static_cast<size_t>(2 * x.dim()), 0);
  padding.back() = missing;
  const at::Tensor whole = missing == 0 ? x : at::constant_pad_nd(x, padding);
  return whole.unflatten(0, {chunks, kDeltaChunk}).transpose(1, 2);
}

at::Tensor in_line(const at::Tensor& x, int64_t tokens) {
  return x.transpose(1, 2).flatten(0, 1).narrow(0, 0, tokens);
}

ChunkMarks ChunkMarks::narrow(int64_t first, int64_t count) const {
  return {sees.narrow(0, first, count), carried.narrow(0, first, count), lasts.narrow(0, first, count),
          keeps.narrow(0, first, count)};
}

ChunkMarks chunk_marks(const std::vector<int64_t>& starts, bool continues, at::Device device) {
  const int64_t tokens = starts.back(), chunks = (tokens + kDeltaChunk - 1) / kDeltaChunk;
  std::vector<int64_t> documents(static_cast<size_t>(chunks * kDeltaChunk), 0);
  int64_t last = 0;
  for (size_t i = 0; i + 1 < starts.size(); ++i) {
    for (int64_t token = starts[i]; token < starts[i + 1]; ++token)
      documents[static_cast<size_t>(token)] = last = static_cast<int64_t>(i);
  }
  for (auto token = static_cast<size_t>(tokens); token < documents.size(); ++token) documents[token] = last;
  std::vector<int64_t> before = {continues && tokens > 0 ? documents.front() : -1};
  for (int64_t chunk = 1; chunk < chunks; ++chunk)
    before.push_back(documents[static_cast<size_t>(chunk * kDeltaChunk - 1)]);
  before.resize(static_cast<size_t>(chunks));
  const at::Tensor own = copied_to(device, documents).view({chunks, kDeltaChunk}),
                   earlier = copied_to(device, before).unsqueeze(1), end = own.narrow(1, kDeltaChunk - 1, 1);
  return {own.unsqueeze(2).eq(own.unsqueeze(1)).tril().unsqueeze(1), own.eq(earlier).unsqueeze(1),
          own.eq(end).unsqueeze(1), end.eq(earlier)};
}

DeltaChunks::DeltaChunks(const DeltaInputs& inputs, const DeltaHead& head, const ChunkMarks& marks)
    : values_(inputs.log_decay.size(1) / inputs.rows.size(1)),
      scale_(1.0 / std::sqrt(static_cast<double>(head.key_dim))) {
  const auto type = compute_type(inputs.rows.scalar_type());
  const int64_t chunks = marks.chunks();
  const at::Tensor rows = in_chunks(inputs.rows, chunks).to(type);  // [chunks, key heads, kDeltaChunk, width]
  const at::Tensor q = rows.narrow(3, 0, head.key_dim), k = rows.narrow(3, head.key_dim, head.key_dim);
  q_factor_ = inverse_norm(q);
  k_factor_ = inverse_norm(k);
  q_ = heads_of_keys(q * (q_factor_ * scale_));
  k_ = heads_of_keys(k * k_factor_);
  v_ = rows.narrow(3, 2 * head.key_dim, values_ * head.value_dim)
           .unflatten(3, {values_, head.value_dim})
           .transpose(2, 3)
           .flatten(1, 2)
           .contiguous();
  strength_ = in_chunks(inputs.strength, chunks).to(type).contiguous();
  const at::Tensor decay = in_chunks(inputs.log_decay, chunks).to(type).cumsum(-1);
  between_ = masked_exp(decay.unsqueeze(-1) - decay.unsqueeze(-2), marks.sees);
  before_ = decay.exp() * marks.carried;
  const at::Tensor end = decay.narrow(2, kDeltaChunk - 1, 1);
  after_ = masked_exp(end - decay, marks.lasts);
  through_ = end.squeeze(2).exp() * marks.keeps;
  key_products_ = at::matmul(k_, transposed(k_)).mul_(between_).tril_(-1);
  system_ = key_products_ * strength_.unsqueeze(-1);
}

at::Tensor DeltaChunks::heads_of_keys(const at::Tensor& x) const {
  if (values_ == 1) return x.contiguous();
  return x.unsqueeze(2)
      .expand({x.size(0), x.size(1), values_, x.size(2), x.size(3)})
      .reshape({x.size(0), x.size(1) * values_, x.size(2), x.size(3)});
}

at::Tensor DeltaChunks::solved(const at::Tensor& rows) const {
  return at::linalg_solve_triangular(system_, rows, /*upper=*/false, /*left=*/true, /*unitriangular=*/true);
}

at::Tensor DeltaChunks::forward(at::Tensor& memory, const at::Tensor& memories) const {
  const int64_t width = v_.size(3), key_dim = k_.size(3);
  const at::Tensor both =
      solved(at::cat({v_ * strength_.unsqueeze(-1), k_ * (strength_ * before_).unsqueeze(-1)}, 3));
  const at::Tensor written = both.narrow(3, 0, width).contiguous(), read = both.narrow(3, width, key_dim);
  const at::Tensor keys = transposed(k_ * after_.unsqueeze(-1));
  for (int64_t chunk = 0; chunk < v_.size(0); ++chunk) {
    memories[chunk].copy_(memory);
    written[chunk].sub_(at::bmm(read[chunk], memory));
    memory = at::baddbmm(memory * through_[chunk].view({-1, 1, 1}), keys[chunk], written[chunk]);
  }
  const at::Tensor seen = at::matmul(q_, transposed(k_)).mul_(between_);
  return at::matmul(q_ * before_.unsqueeze(-1), memories).add_(at::matmul(seen, written));
}

// The gradients follow from the formulas of the class, step by step backwards. d(log decay) collects, at each
// exponential of a difference of sums of decays, plus at the first and minus at the second of the two.
DeltaChunks::Gradients DeltaChunks::backward(const at::Tensor& grad, const at::Tensor& memories,
                                             at::Tensor& grad_memory) const {
  const int64_t width = v_.size(3), key_dim = k_.size(3), chunks = v_.size(0);
  const at::Tensor read_factor = (strength_ * before_).unsqueeze(-1);
  const at::Tensor keys_read = k_ * read_factor, keys_written = k_ * after_.unsqueeze(-1),
                   queries = q_ * before_.unsqueeze(-1);
  const at::Tensor both = solved(at::cat({v_ * strength_.unsqueeze(-1), keys_read}, 3));
  const at::Tensor read = both.narrow(3, width, key_dim).contiguous();
  const at::Tensor written = both.narrow(3, 0, width) - at::matmul(read, memories);
  const at::Tensor seen = at::matmul(q_, transposed(k_)).mul_(between_);

  const at::Tensor grad_written = at::matmul(transposed(seen), grad);
  const at::Tensor of_queries = at::matmul(transposed(queries), grad);
  const at::Tensor grad_memories = at::empty_like(memories);  // of the memories after the chunks
  for (int64_t chunk = chunks - 1; chunk >= 0; --chunk) {
    grad_memories[chunk].copy_(grad_memory);
    grad_written[chunk].add_(at::bmm(keys_written[chunk], grad_memory));
    grad_memory = at::baddbmm(of_queries[chunk] + grad_memory * through_[chunk].view({-1, 1, 1}),
                              transposed(read[chunk]), grad_written[chunk], /*beta=*/1.0, /*alpha=*/-1.0);
  }
  const at::Tensor grad_rows =
      at::linalg_solve_triangular(transposed(system_), grad_written, /*upper=*/true, /*left=*/true,
                                  /*unitriangular=*/true);
  const at::Tensor grad_queries = at::matmul(grad, transposed(memories));
  const at::Tensor grad_keys_read = at::matmul(grad_rows, transposed(memories)).neg_();
  const at::Tensor grad_keys_written = at::matmul(written, transposed(grad_memories));
  const at::Tensor grad_seen = at::matmul(grad, transposed(written));
  const at::Tensor grad_system = at::matmul(grad_rows, transposed(written)).neg_().tril_(-1);

  Gradients result;
  result.v = grad_rows * strength_.unsqueeze(-1);
  const at::Tensor through_keys = (grad_keys_read * k_).sum(-1);
  result.strength = (grad_rows * v_).sum(-1) + before_ * through_keys + (grad_system * key_products_).sum(-1);

  const at::Tensor of_after = (grad_keys_written * keys_written).sum(-1);
  const at::Tensor of_pairs = grad_seen * seen + grad_system * system_;
  at::Tensor of_decay = (grad_queries * queries).sum(-1) + through_keys * read_factor.squeeze(-1) - of_after +
                        of_pairs.sum(-1) - of_pairs.sum(-2);
  of_decay.select(2, kDeltaChunk - 1)
      .add_(of_after.sum(-1) + through_ * (memories * grad_memories).sum({2, 3}));
  result.log_decay = of_decay.flip(2).cumsum(2).flip(2);

  const at::Tensor grad_scores = grad_seen * between_;
  const at::Tensor grad_products = grad_system * between_ * strength_.unsqueeze(-1);
  const at::Tensor grad_q = (grad_queries * before_.unsqueeze(-1)).add_(at::matmul(grad_scores, k_));
  const at::Tensor grad_k = (grad_keys_read * read_factor)
                                .add_(grad_keys_written * after_.unsqueeze(-1))
                                .add_(at::matmul(transposed(grad_scores), q_))
                                .add_(at::matmul(grad_products + transposed(grad_products), k_));
  result.q =
      through_norm(sum_to_key_heads(grad_q, values_) * scale_, first_heads(q_, values_) / scale_, q_factor_);
  result.k = through_norm(sum_to_key_heads(grad_k, values_), first_heads(k_, values_), k_factor_);
  return result;
}

}  // namespace tessera::ops
