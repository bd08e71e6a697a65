#include "tessera/ops/attention_blocks.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <type_traits>
#include <utility>

#include "tessera/core/round_up.h"
#include "tessera/ops/kernels/attention.h"
#include "tessera/ops/kernels/gemm.h"

namespace tessera::ops {
namespace {

using kernels::Transpose;

// Queries of a block: its scores fit in the second-level cache beside what they are multiplied with.
constexpr int64_t kQueries = 64;

// Returns memory for what is made of the scores in `block`: the same memory if T is the type that scores are
// computed in, else `own`.
template <class T, class C>
T* over(C* block, Buffer<T>& own, int64_t size) {
  if constexpr (std::is_same_v<T, C>) {
    return block;
  } else {
    return own.of_size(size);
  }
}

// Row stride and size of a block of scores: rows start on whole vectors, and one more vector lies after the
// last of them.
int64_t block_stride(int64_t width) { return round_up<int64_t>(width, 16); }
int64_t block_size(int64_t rows, int64_t stride) { return rows * stride + 16; }

template <class T>
struct Keys {
  HeadRows<const T> k, v;
  int64_t count;
};

// The keys of a block that some of its queries see, and which of these each query sees and drops.
template <class T>
struct SeenKeys {
  HeadRows<const T> k, v;
  int64_t first, count;
  kernels::KeyBand band;
  kernels::PairDropout dropout;
};
template <class T>
SeenKeys<T> seen_keys(const Keys<T>& keys, const kernels::KeyBand& band, const kernels::PairDropout& dropout,
                      int64_t rows) {
  const kernels::KeyBand own = band.of_first(keys.count);
  const auto [begin, end] = own.keys_seen(rows);
  return {
      keys.k.from(begin),    keys.v.from(begin), begin, end - begin, own.from(0, begin).of_first(end - begin),
      dropout.from(0, begin)};
}

// The forward by the BLAS. A state holds the maximum and the sum of every query's softmax, and the weighted
// sums of the values.
template <class T>
class ForwardBlas final : public ForwardBlocks<T> {
 public:
  using C = kernels::ComputeType<T>;
  ForwardBlas(int64_t head_dim, const ScoreFormula& formula)
      : head_dim_(head_dim), scale_(static_cast<C>(formula.scale)), cap_(static_cast<C>(formula.soft_cap)) {}

  int64_t max_queries() const override { return kQueries; }
  int64_t state_size() const override { return kQueries * (2 + head_dim_); }

  void set_keys(HeadRows<const T> k, HeadRows<const T> v, int64_t count) override { keys_ = {k, v, count}; }

  void attend(HeadRows<const T> q, int64_t rows, const kernels::KeyBand& band,
              const kernels::PairDropout& dropout, bool is_first, C* state) override {
    const SeenKeys<T> keys = seen_keys(keys_, band, dropout, rows);
    const int64_t width = keys.count, stride = block_stride(width);
    C* scores = scores_.of_size(block_size(rows, stride));
    T* probabilities = over<T>(scores, probabilities_, block_size(rows, stride));
    C *row_max = state, *row_sum = state + kQueries, *sum = state + 2 * kQueries;
    if (is_first) {
      std::fill_n(row_max, kQueries, -std::numeric_limits<C>::infinity());
      std::fill_n(row_sum, kQueries, C(0));
    }
    kernels::gemm(Transpose::No, Transpose::Yes, rows, width, head_dim_, q.data, q.stride, keys.k.data,
                  keys.k.stride, C(0), scores, stride);
    if (cap_ > 0) kernels::soft_cap(scores, rows, width, stride, scale_, cap_);
    std::array<C, kQueries> rescale;
    kernels::attention_softmax(scores, rows, width, stride, keys.band, cap_ > 0 ? C(1) : scale_, row_max,
                               row_sum, rescale.data(), probabilities);
    if (dropout.draws != nullptr) kernels::drop_pairs(probabilities, rows, width, stride, keys.dropout);
    if (!is_first) kernels::scale_rows(sum, rescale.data(), rows, head_dim_);
    kernels::gemm(Transpose::No, Transpose::No, rows, head_dim_, width, probabilities, stride, keys.v.data,
                  keys.v.stride, C(is_first ? 0 : 1), sum, head_dim_);
  }

  void finish(const C* state, int64_t rows, HeadRows<T> out, HeadRows<C> log_sum) override {
    const C *row_max = state, *row_sum = state + kQueries, *sum = state + 2 * kQueries;
    kernels::divide_rows(sum, row_sum, out.data, out.stride, rows, head_dim_);
    for (int64_t row = 0; row < rows; ++row) *log_sum.row(row) = row_max[row] + std::log(row_sum[row]);
  }

 private:
  int64_t head_dim_;
  C scale_, cap_;
  Keys<T> keys_{};
  Buffer<C> scores_;
  Buffer<T> probabilities_;
};

// The backward by the BLAS. A state holds the gradient of every query.
template <class T>
class BackwardBlas final : public BackwardBlocks<T> {
 public:
  using C = kernels::ComputeType<T>;
  BackwardBlas(int64_t head_dim, const ScoreFormula& formula)
      : head_dim_(head_dim), scale_(static_cast<C>(formula.scale)), cap_(static_cast<C>(formula.soft_cap)) {}

  int64_t max_queries() const override { return kQueries; }
  int64_t state_size() const override { return kQueries * head_dim_; }

  void set_keys(HeadRows<const T> k, HeadRows<const T> v, int64_t count) override { keys_ = {k, v, count}; }

  void differentiate(const BackwardQueries<T>& queries, const kernels::KeyBand& band,
                     const kernels::PairDropout& dropout, bool is_first, C* all_grad_k, C* all_grad_v,
                     C* state) override {
    const SeenKeys<T> keys = seen_keys(keys_, band, dropout, queries.rows);
    const int64_t rows = queries.rows, width = keys.count, stride = block_stride(width),
                  block = block_size(rows, stride), grad_row = grad_stride(head_dim_);
    C *grad_k = all_grad_k + keys.first * grad_row, *grad_v = all_grad_v + keys.first * grad_row;
    const auto& [q, out, grad_out, log_sum, num_rows] = queries;
    C* scores = scores_.of_size(block);
    C* grad_scores = grad_scores_.of_size(block);
    T* probabilities = over<T>(scores, narrow_scores_, block);
    T* grad_logits = over<T>(grad_scores, narrow_grad_scores_, block);
    std::array<C, kQueries> delta;
    kernels::row_dots(out.data, out.stride, grad_out.data, grad_out.stride, rows, head_dim_, delta.data());
    kernels::gemm(Transpose::No, Transpose::Yes, rows, width, head_dim_, q.data, q.stride, keys.k.data,
                  keys.k.stride, C(0), scores, stride);
    kernels::gemm(Transpose::No, Transpose::Yes, rows, width, head_dim_, grad_out.data, grad_out.stride,
                  keys.v.data, keys.v.stride, C(0), grad_scores, stride);
    if (dropout.draws != nullptr) kernels::drop_pairs(grad_scores, rows, width, stride, keys.dropout);
    if (cap_ > 0) {
      kernels::soft_cap_backward(scores, grad_scores, rows, width, stride, scale_, cap_, delta.data(), 1, 0);
    }
    kernels::attention_softmax_backward(scores, grad_scores, rows, width, stride, keys.band,
                                        cap_ > 0 ? C(1) : scale_, log_sum.data, log_sum.stride, delta.data(),
                                        probabilities, grad_logits);
    if (dropout.draws != nullptr) kernels::drop_pairs(probabilities, rows, width, stride, keys.dropout);
    kernels::gemm(Transpose::Yes, Transpose::No, width, head_dim_, rows, probabilities, stride, grad_out.data,
                  grad_out.stride, C(1), grad_v, grad_row);
    kernels::gemm(Transpose::Yes, Transpose::No, width, head_dim_, rows, grad_logits, stride, q.data,
                  q.stride, C(1), grad_k, grad_row);
    kernels::gemm(Transpose::No, Transpose::No, rows, head_dim_, width, grad_logits, stride, keys.k.data,
                  keys.k.stride, C(is_first ? 0 : 1), state, head_dim_);
  }

  void finish(const C* state, int64_t rows, HeadRows<T> grad_q) override {
    for (int64_t row = 0; row < rows; ++row) {
      kernels::sum_parts(state + row * head_dim_, 0, 1, grad_q.row(row), head_dim_);
    }
  }

 private:
  int64_t head_dim_;
  C scale_, cap_;
  Keys<T> keys_{};
  Buffer<C> scores_, grad_scores_;
  Buffer<T> narrow_scores_, narrow_grad_scores_;
};

// Tells whether documents fill enough of the panels of 32 by 32 for panels to be faster.
template <class T>
bool fill_panels(double mean_length) {
  constexpr double kLeastFloats = 24;
  return !std::is_same_v<T, float> || mean_length >= kLeastFloats;
}

}  // namespace

template <class T>
std::unique_ptr<ForwardBlocks<T>> make_forward_blocks(int64_t head_dim, const ScoreFormula& formula,
                                                      double mean_length) {
  auto panels = fill_panels<T>(mean_length) ? make_forward_panels<T>(head_dim, formula) : nullptr;
  return panels != nullptr ? std::move(panels) : std::make_unique<ForwardBlas<T>>(head_dim, formula);
}
template <class T>
std::unique_ptr<BackwardBlocks<T>> make_backward_blocks(int64_t head_dim, const ScoreFormula& formula,
                                                        double mean_length) {
  auto panels = fill_panels<T>(mean_length) ? make_backward_panels<T>(head_dim, formula) : nullptr;
  return panels != nullptr ? std::move(panels) : std::make_unique<BackwardBlas<T>>(head_dim, formula);
}

#define TESSERA_INSTANTIATE(T)                                                                             \
  template std::unique_ptr<ForwardBlocks<T>> make_forward_blocks<T>(int64_t, const ScoreFormula&, double); \
  template std::unique_ptr<BackwardBlocks<T>> make_backward_blocks<T>(int64_t, const ScoreFormula&, double);
TESSERA_INSTANTIATE(float)
TESSERA_INSTANTIATE(double)
TESSERA_INSTANTIATE(kernels::Bf16)
#undef TESSERA_INSTANTIATE

}  // namespace tessera::ops
