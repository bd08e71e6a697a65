#include <algorithm>
#include <array>
#include <limits>
#include <memory>
#include <type_traits>

#include "tessera/core/round_up.h"
#include "tessera/ops/attention_blocks.h"
#include "tessera/ops/kernels/units.h"

// [Note: attention in panels]
// Scores are computed transposed, keys by queries, panel of 32 by panel of 32: S = K Q^T. What the softmax
// makes of them is written in the form in which the next product reads it, and the panels in between stay in
// the first-level cache. Forward: O^T = V^T P. Backward: dV = P dO and dK = dS Q
// come out as stored, dQ^T = K^T dS transposed.

namespace tessera::ops {
namespace {

using namespace kernels;

constexpr int64_t kSquare = kPanelLines * kPanelLines;

// A packed operand.
template <class T>
class Operand {
 public:
  explicit Operand(const Units<T>& units) : units_(units) {}
  void pack(Side side, Lines<T> from, int64_t lines, int64_t depth) {
    of_size(lines, depth);
    units_.pack(side, from, lines, depth, data_, blocks_ * units_.block_bytes);
  }
  void of_size(int64_t lines, int64_t depth) {
    panels_ = panels_of(lines);
    blocks_ = blocks_of(depth);
    data_ = memory_.of_size(panels_ * blocks_ * units_.block_bytes);
  }
  char* at(int64_t panel, int64_t block = 0) const {
    return data_ + (panel * blocks_ + block) * units_.block_bytes;
  }
  int64_t panels() const { return panels_; }
  int64_t blocks() const { return blocks_; }

 private:
  const Units<T>& units_;
  Buffer<char> memory_;
  char* data_ = nullptr;
  int64_t panels_ = 0, blocks_ = 0;
};

template <class T>
Lines<T> depth_along(HeadRows<const T> rows) {
  return {rows.data, rows.stride, true};
}
template <class T>
Lines<T> depth_across(HeadRows<const T> rows) {
  return {rows.data, rows.stride, false};
}

template <class T>
class ForwardPanels final : public ForwardBlocks<T> {
 public:
  ForwardPanels(const Units<T>& units, int64_t head_dim, float scale)
      : units_(units), head_dim_(head_dim), scale_(scale) {}

  int64_t max_queries() const override { return kPanelLines; }
  int64_t state_size() const override { return 2 * kPanelLines + panels_of(head_dim_) * kSquare; }

  void set_keys(HeadRows<const T> k, HeadRows<const T> v, int64_t count) override {
    k_.pack(Side::Left, depth_along(k), count, head_dim_);
    v_turned_.pack(Side::Left, depth_across(v), head_dim_, count);
  }

  void attend(HeadRows<const T> q, int64_t rows, int64_t first, bool is_first, float* state) override {
    const int64_t own_panel = first / kPanelLines, panels = std::min(own_panel + 1, k_.panels());
    q_.pack(Side::Right, depth_along(q), rows, head_dim_);
    float* scores = scores_.of_size(panels * kSquare);
    numerators_.of_size(kPanelLines, panels * kPanelLines);
    for (int64_t i = 0; i < panels; ++i) {
      units_.multiply_panel(k_.at(i), q_.at(0), k_.blocks(), false, scores + i * kSquare, kPanelLines);
    }
    auto& softmax = *reinterpret_cast<SoftmaxState*>(state);
    float* sum = state + 2 * kPanelLines;
    alignas(64) std::array<float, kPanelLines> rescale;
    units_.softmax(scores, panels, own_panel < panels, scale_, is_first, softmax, rescale.data(),
                   numerators_.at(0));
    if (!is_first) units_.scale_columns(sum, rescale.data(), head_dim_);
    for (int64_t i = 0; i < v_turned_.panels(); ++i) {
      units_.multiply_panel(v_turned_.at(i), numerators_.at(0), panels, !is_first, sum + i * kSquare,
                            kPanelLines);
    }
  }

  void finish(const float* state, int64_t rows, HeadRows<T> out, HeadRows<float> log_sum) override {
    alignas(64) std::array<float, kPanelLines> factors, logarithms;
    units_.softmax_end(*reinterpret_cast<const SoftmaxState*>(state), factors.data(), logarithms.data());
    units_.turn_columns(state + 2 * kPanelLines, factors.data(), head_dim_, rows, out.data, out.stride);
    for (int64_t i = 0; i < rows; ++i) *log_sum.row(i) = logarithms[i];
  }

 private:
  const Units<T>& units_;
  int64_t head_dim_;
  float scale_;
  UnitSession session_{units_.isa};
  Operand<T> k_{units_}, v_turned_{units_}, q_{units_}, numerators_{units_};
  Buffer<float> scores_;
};

template <class T>
class BackwardPanels final : public BackwardBlocks<T> {
 public:
  BackwardPanels(const Units<T>& units, int64_t head_dim, float scale)
      : units_(units), head_dim_(head_dim), scale_(scale) {}

  int64_t max_queries() const override { return units_.backward_queries; }
  int64_t state_size() const override { return max_queries() / kPanelLines * panels_of(head_dim_) * kSquare; }

  void set_keys(HeadRows<const T> k, HeadRows<const T> v, int64_t count) override {
    num_keys_ = count;
    k_.pack(Side::Left, depth_along(k), count, head_dim_);
    v_.pack(Side::Left, depth_along(v), count, head_dim_);
    k_turned_.pack(Side::Left, depth_across(k), head_dim_, count);
  }

  void differentiate(const BackwardQueries<T>& queries, int64_t first, bool is_first, float* grad_k,
                     float* grad_v, float* state) override {
    set_queries(queries);
    const int64_t diagonal = first / kPanelLines, query_panels = q_.panels(), width = panels_of(head_dim_);
    const int64_t panels = std::min(diagonal + query_panels, k_.panels());
    p_.of_size(kPanelLines, queries.rows);
    g_.of_size(kPanelLines, queries.rows);
    g_turned_.of_size(queries.rows, num_keys_);
    for (int64_t key = 0; key < panels; ++key) {
      const int64_t begin = std::max<int64_t>(key - diagonal, 0), count = query_panels - begin;
      // One panel ahead: the tile units work beside the vector units.
      multiply_scores(key, begin);
      for (int64_t query = begin; query < query_panels; ++query) {
        if (query + 1 < query_panels) multiply_scores(key, query + 1);
        units_.softmax_backward(scores_[query % 2], grad_numerators_[query % 2], key == diagonal + query,
                                scale_, log_sum_ + query * kPanelLines, delta_ + query * kPanelLines,
                                p_.at(0, query), g_.at(0, query), g_turned_.at(query, key));
      }
      const int64_t stride = grad_stride(head_dim_), at = key * kPanelLines * stride;
      for (int64_t i = 0; i < width; ++i) {
        units_.multiply_panel(p_.at(0, begin), grad_turned_.at(i, begin), count, true,
                              grad_v + at + i * kPanelLines, stride);
        units_.multiply_panel(g_.at(0, begin), q_turned_.at(i, begin), count, true,
                              grad_k + at + i * kPanelLines, stride);
      }
    }
    for (int64_t query = 0; query < query_panels; ++query) {
      const int64_t seen = std::min(diagonal + query + 1, panels);
      for (int64_t i = 0; i < width; ++i) {
        units_.multiply_panel(k_turned_.at(i), g_turned_.at(query), seen, !is_first,
                              state + (query * width + i) * kSquare, kPanelLines);
      }
    }
  }

  void finish(const float* state, int64_t rows, HeadRows<T> grad_q) override {
    alignas(64) std::array<float, kPanelLines> ones;
    ones.fill(1.0f);
    for (int64_t row = 0; row < rows; row += kPanelLines) {
      units_.turn_columns(state + row * panels_of(head_dim_) * kPanelLines, ones.data(), head_dim_,
                          std::min(kPanelLines, rows - row), grad_q.row(row), grad_q.stride);
    }
  }

 private:
  static constexpr int64_t kMaxQueries = 512;

  void multiply_scores(int64_t key, int64_t query) {
    units_.multiply_panel(k_.at(key), q_.at(query), k_.blocks(), false, scores_[query % 2], kPanelLines);
    units_.multiply_panel(v_.at(key), grad_.at(query), v_.blocks(), false, grad_numerators_[query % 2],
                          kPanelLines);
  }

  void set_queries(const BackwardQueries<T>& queries) {
    const int64_t rows = queries.rows;
    q_.pack(Side::Right, depth_along(queries.q), rows, head_dim_);
    grad_.pack(Side::Right, depth_along(queries.grad_out), rows, head_dim_);
    q_turned_.pack(Side::Right, depth_across(queries.q), head_dim_, rows);
    grad_turned_.pack(Side::Right, depth_across(queries.grad_out), head_dim_, rows);
    units_.row_dots(queries.out.data, queries.out.stride, queries.grad_out.data, queries.grad_out.stride,
                    rows, head_dim_, delta_);
    for (int64_t row = 0; row < rows; ++row) log_sum_[row] = *queries.log_sum.row(row);
    const int64_t padded = round_up(rows, kPanelLines);
    std::fill(log_sum_ + rows, log_sum_ + padded, std::numeric_limits<float>::infinity());
    std::fill(delta_ + rows, delta_ + padded, 0.0f);
  }

  const Units<T>& units_;
  int64_t head_dim_;
  float scale_;
  UnitSession session_{units_.isa};
  int64_t num_keys_ = 0;
  Operand<T> k_{units_}, v_{units_}, k_turned_{units_}, q_{units_}, q_turned_{units_}, grad_{units_},
      grad_turned_{units_}, p_{units_}, g_{units_}, g_turned_{units_};
  alignas(64) float scores_[2][kSquare], grad_numerators_[2][kSquare];
  alignas(64) float log_sum_[kMaxQueries], delta_[kMaxQueries];
};

}  // namespace

template <class T>
std::unique_ptr<ForwardBlocks<T>> make_forward_panels(int64_t head_dim, ComputeType<T> scale) {
  if constexpr (!std::is_same_v<T, double>) {
    if (const Units<T>* best = units<T>()) return std::make_unique<ForwardPanels<T>>(*best, head_dim, scale);
  }
  return nullptr;
}
template <class T>
std::unique_ptr<BackwardBlocks<T>> make_backward_panels(int64_t head_dim, ComputeType<T> scale) {
  if constexpr (!std::is_same_v<T, double>) {
    if (const Units<T>* best = units<T>()) return std::make_unique<BackwardPanels<T>>(*best, head_dim, scale);
  }
  return nullptr;
}

#define TESSERA_INSTANTIATE(T)                                                                         \
  template std::unique_ptr<ForwardBlocks<T>> make_forward_panels<T>(int64_t, kernels::ComputeType<T>); \
  template std::unique_ptr<BackwardBlocks<T>> make_backward_panels<T>(int64_t, kernels::ComputeType<T>);
TESSERA_INSTANTIATE(float)
TESSERA_INSTANTIATE(double)
TESSERA_INSTANTIATE(kernels::Bf16)
#undef TESSERA_INSTANTIATE

}  // namespace tessera::ops
