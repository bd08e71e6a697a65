#include <algorithm>
#include <array>
#include <limits>
#include <type_traits>

#include "tessera/core/round_up.h"
#include "tessera/ops/attention_blocks.h"
#include "tessera/ops/kernels/attention.h"
#include "tessera/ops/kernels/tile_attention.h"
#include "tessera/ops/kernels/tile_multiply.h"

// [Note: attention on tiles]
// Scores are computed transposed, keys by queries, panel of 32 by panel of 32: S = K Q^T. What the softmax
// makes of them is written by the vector units in the form in which the tile units read it next, and the
// panels in between stay in the first-level cache. Forward: O^T = V^T P. Backward: dV = P dO and dK = dS Q
// come out as stored, dQ^T = K^T dS transposed.

namespace tessera::ops {
namespace {

using namespace kernels;

int64_t panels_of(int64_t lines) { return (lines + kPanelLines - 1) / kPanelLines; }

// A packed operand, `deep` elements deep.
template <class T>
class Operand {
 public:
  void pack(Side side, Lines<T> from, int64_t lines, int64_t deep) {
    of_size(lines, deep);
    pack_lines(side, from, lines, deep, memory_.of_size(0));
  }
  void of_size(int64_t lines, int64_t deep) {
    lines_ = lines;
    panel_bytes_ = panels_of(deep) * kBlockBytes<T>;
    memory_.of_size(panels_of(lines) * panel_bytes_);
  }
  char* block(int64_t panel, int64_t block) {
    return memory_.of_size(0) + panel * panel_bytes_ + block * kBlockBytes<T>;
  }
  // All panels, from a block of the depth on.
  Packed all(int64_t first_block = 0) { return {block(0, first_block), lines_, panel_bytes_}; }
  // One panel, as if it were whole, or `blocks` blocks of it.
  Packed panel(int64_t i) { return {block(i, 0), kPanelLines, panel_bytes_}; }
  Packed panel(int64_t i, int64_t first_block, int64_t blocks) {
    return {block(i, first_block), std::min(kPanelLines, lines_ - i * kPanelLines), blocks * kBlockBytes<T>};
  }
  int64_t panels() const { return panels_of(lines_); }

 private:
  Buffer<char> memory_;
  int64_t lines_ = 0, panel_bytes_ = 0;
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
class ForwardTiles final : public ForwardBlocks<T> {
 public:
  ForwardTiles(int64_t head_dim, float scale) : head_dim_(head_dim), scale_(scale) {}

  int64_t max_queries() const override { return kPanelLines; }
  int64_t state_size() const override { return 2 * kPanelLines + head_dim_ * kPanelLines; }

  void set_keys(HeadRows<const T> k, HeadRows<const T> v, int64_t count) override {
    k_.pack(Side::Left, depth_along(k), count, head_dim_);
    v_turned_.pack(Side::Left, depth_across(v), head_dim_, count);
  }

  void attend(HeadRows<const T> q, int64_t rows, int64_t first, bool is_first, float* state) override {
    const int64_t own_panel = first / kPanelLines, panels = std::min(own_panel + 1, k_.panels());
    q_.pack(Side::Right, depth_along(q), rows, head_dim_);
    float* scores = scores_.of_size(panels * kPanelLines * kPanelLines);
    numerators_.of_size(kPanelLines, panels * kPanelLines);
    Packed keys = k_.all();
    keys.lines = panels * kPanelLines;
    multiply_packed<T>(keys, q_.panel(0), 1, 0.0f, scores, kPanelLines);
    auto& softmax = *reinterpret_cast<SoftmaxState*>(state);
    float* sum = state + 2 * kPanelLines;
    alignas(64) std::array<float, kPanelLines> rescale;
    tile_softmax<T>(scores, panels, own_panel < panels, scale_, is_first, softmax, rescale.data(),
                    numerators_.block(0, 0));
    if (!is_first) scale_columns(sum, rescale.data(), head_dim_);
    for (int64_t i = 0; i < v_turned_.panels(); ++i) {
      multiply_packed<T>(v_turned_.panel(i, 0, panels), numerators_.panel(0), 1, is_first ? 0.0f : 1.0f,
                         sum + i * kPanelLines * kPanelLines, kPanelLines);
    }
  }

  void finish(const float* state, int64_t rows, HeadRows<T> out, HeadRows<float> log_sum) override {
    alignas(64) std::array<float, kPanelLines> factors, logarithms;
    tile_softmax_end(*reinterpret_cast<const SoftmaxState*>(state), factors.data(), logarithms.data());
    turn_columns(state + 2 * kPanelLines, factors.data(), head_dim_, rows, out.data, out.stride);
    for (int64_t i = 0; i < rows; ++i) *log_sum.row(i) = logarithms[i];
  }

 private:
  int64_t head_dim_;
  float scale_;
  TileSession session_;
  Operand<T> k_, v_turned_, q_, numerators_;
  Buffer<float> scores_;
};

template <class T>
class BackwardTiles final : public BackwardBlocks<T> {
 public:
  BackwardTiles(int64_t head_dim, float scale) : head_dim_(head_dim), scale_(scale) {}

  int64_t max_queries() const override { return kMaxQueries; }
  int64_t state_size() const override { return kMaxQueries * head_dim_; }

  void set_keys(HeadRows<const T> k, HeadRows<const T> v, int64_t count) override {
    num_keys_ = count;
    k_.pack(Side::Left, depth_along(k), count, head_dim_);
    v_.pack(Side::Left, depth_along(v), count, head_dim_);
    k_turned_.pack(Side::Left, depth_across(k), head_dim_, count);
  }

  void differentiate(const BackwardQueries<T>& queries, int64_t first, bool is_first, float* grad_k,
                     float* grad_v, float* state) override {
    set_queries(queries);
    const int64_t diagonal = first / kPanelLines, query_panels = q_.panels();
    const int64_t panels = std::min(diagonal + query_panels, k_.panels());
    p_.of_size(kPanelLines, queries.rows);
    g_.of_size(kPanelLines, queries.rows);
    g_turned_.of_size(queries.rows, num_keys_);
    for (int64_t key = 0; key < panels; ++key) {
      const int64_t begin = std::max<int64_t>(key - diagonal, 0), count = query_panels - begin;
      for (int64_t query = begin; query < query_panels; ++query) {
        multiply_packed<T>(k_.panel(key), q_.panel(query), 1, 0.0f, scores_, kPanelLines);
        multiply_packed<T>(v_.panel(key), grad_.panel(query), 1, 0.0f, grad_numerators_, kPanelLines);
        tile_softmax_backward<T>(scores_, grad_numerators_, key == diagonal + query, scale_,
                                 log_sum_ + query * kPanelLines, delta_ + query * kPanelLines,
                                 p_.block(0, query), g_.block(0, query), g_turned_.block(query, key));
      }
      const int64_t at = key * kPanelLines * head_dim_,
                    lines = std::min(kPanelLines, num_keys_ - key * kPanelLines);
      Packed p = p_.panel(0, begin, count), g = g_.panel(0, begin, count);
      p.lines = g.lines = lines;
      multiply_packed<T>(p, grad_turned_.all(begin), grad_turned_.panels(), 1.0f, grad_v + at, head_dim_);
      multiply_packed<T>(g, q_turned_.all(begin), q_turned_.panels(), 1.0f, grad_k + at, head_dim_);
    }
    for (int64_t query = 0; query < query_panels; ++query) {
      const int64_t seen = std::min(diagonal + query + 1, panels);
      for (int64_t i = 0; i < k_turned_.panels(); ++i) {
        multiply_packed<T>(k_turned_.panel(i, 0, seen), g_turned_.panel(query), 1, is_first ? 0.0f : 1.0f,
                           state + (query * head_dim_ + i * kPanelLines) * kPanelLines, kPanelLines);
      }
    }
  }

  void finish(const float* state, int64_t rows, HeadRows<T> grad_q) override {
    alignas(64) std::array<float, kPanelLines> ones;
    ones.fill(1.0f);
    for (int64_t row = 0; row < rows; row += kPanelLines) {
      turn_columns(state + row * head_dim_, ones.data(), head_dim_, std::min(kPanelLines, rows - row),
                   grad_q.row(row), grad_q.stride);
    }
  }

 private:
  // What is held of the queries and of their scores' gradients should fit in the second-level cache.
  static constexpr int64_t kMaxQueries = std::is_same_v<T, float> ? 128 : 512;

  void set_queries(const BackwardQueries<T>& queries) {
    const int64_t rows = queries.rows;
    q_.pack(Side::Right, depth_along(queries.q), rows, head_dim_);
    grad_.pack(Side::Right, depth_along(queries.grad_out), rows, head_dim_);
    q_turned_.pack(Side::Right, depth_across(queries.q), head_dim_, rows);
    grad_turned_.pack(Side::Right, depth_across(queries.grad_out), head_dim_, rows);
    scaled_dots(queries.out.data, queries.out.stride, queries.grad_out.data, queries.grad_out.stride, rows,
                head_dim_, 1.0f, delta_);
    for (int64_t row = 0; row < rows; ++row) log_sum_[row] = *queries.log_sum.row(row);
    const int64_t padded = round_up(rows, kPanelLines);
    std::fill(log_sum_ + rows, log_sum_ + padded, std::numeric_limits<float>::infinity());
    std::fill(delta_ + rows, delta_ + padded, 0.0f);
  }

  int64_t head_dim_;
  float scale_;
  TileSession session_;
  int64_t num_keys_ = 0;
  Operand<T> k_, v_, k_turned_, q_, q_turned_, grad_, grad_turned_, p_, g_, g_turned_;
  alignas(64) float scores_[kPanelLines * kPanelLines], grad_numerators_[kPanelLines * kPanelLines];
  alignas(64) float log_sum_[kMaxQueries], delta_[kMaxQueries];
};

}  // namespace

template <class T>
std::unique_ptr<ForwardBlocks<T>> make_forward_tiles(int64_t head_dim, ComputeType<T> scale) {
  if constexpr (!std::is_same_v<T, double>) {
    if (has_tiles()) return std::make_unique<ForwardTiles<T>>(head_dim, scale);
  }
  return nullptr;
}
template <class T>
std::unique_ptr<BackwardBlocks<T>> make_backward_tiles(int64_t head_dim, ComputeType<T> scale) {
  if constexpr (!std::is_same_v<T, double>) {
    if (has_tiles()) return std::make_unique<BackwardTiles<T>>(head_dim, scale);
  }
  return nullptr;
}

#define TESSERA_INSTANTIATE(T)                                                                        \
  template std::unique_ptr<ForwardBlocks<T>> make_forward_tiles<T>(int64_t, kernels::ComputeType<T>); \
  template std::unique_ptr<BackwardBlocks<T>> make_backward_tiles<T>(int64_t, kernels::ComputeType<T>);
TESSERA_INSTANTIATE(float)
TESSERA_INSTANTIATE(double)
TESSERA_INSTANTIATE(kernels::Bf16)
#undef TESSERA_INSTANTIATE

}  // namespace tessera::ops
