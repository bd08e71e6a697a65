#include <algorithm>
#include <array>
#include <limits>
#include <memory>
#include <type_traits>

#include "tessera/core/round_up.h"
#include "tessera/ops/attention_blocks.h"
#include "tessera/ops/kernels/attention.h"
#include "tessera/ops/kernels/units.h"

// [Note: attention in panels] Scores are computed transposed, keys by queries, in panels of 32 by 32: S = K
// Q^T. The softmax writes its results in the packed form in which the next product reads them ([Note: packed
// operands]), and the panels in between stay in the first-level cache. In the forward, O^T = V^T P is summed
// transposed, and turned when it is finished. In the backward, dV = P dO and dK = dS Q come out as they are
// stored; dQ^T = K^T dS comes out transposed and is turned too. P and dS, keys by queries, are each made once
// and written in all forms that these products need (p_, g_, g_turned_).

namespace tessera::ops {
namespace {

using namespace kernels;

constexpr int64_t kSquare = kPanelLines * kPanelLines;

// A packed operand of a product, and its memory.
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

// Returns the panels of keys of which some query sees a part.
IndexRange seen_panels(const KeyBand& band, int64_t queries) {
  const auto [begin, end] = band.keys_seen(queries);
  return begin < end ? IndexRange{begin / kPanelLines, panels_of(end)} : IndexRange{0, 0};
}

template <class T>
class ForwardPanels final : public ForwardBlocks<T> {
 public:
  ForwardPanels(const Units<T>& units, int64_t head_dim, const ScoreFormula& formula)
      : units_(units),
        head_dim_(head_dim),
        scale_(static_cast<float>(formula.scale)),
        cap_(static_cast<float>(formula.soft_cap)) {}

  int64_t max_queries() const override { return kPanelLines; }
  int64_t state_size() const override { return 2 * kPanelLines + panels_of(head_dim_) * kSquare; }

  void set_keys(HeadRows<const T> k, HeadRows<const T> v, int64_t count) override {
    num_keys_ = count;
    k_.pack(Side::Left, depth_along(k), count, head_dim_);
    v_turned_.pack(Side::Left, depth_across(v), head_dim_, count);
  }

  void attend(HeadRows<const T> q, int64_t rows, const KeyBand& all, const PairDropout& dropout,
              bool is_first, float* state) override {
    const KeyBand band = all.of_first(num_keys_);
    const auto [begin, end] = seen_panels(band, rows);
    const int64_t panels = end - begin;
    q_.pack(Side::Right, depth_along(q), rows, head_dim_);
    float* scores = scores_.of_size(panels * kSquare);
    numerators_.of_size(kPanelLines, panels * kPanelLines);
    for (int64_t i = 0; i < panels; ++i) {
      units_.multiply_panel(k_.at(begin + i), q_.at(0), k_.blocks(), false, scores + i * kSquare,
                            kPanelLines);
    }
    if (cap_ > 0) soft_cap(scores, panels * kPanelLines, kPanelLines, kPanelLines, scale_, cap_);
    auto& softmax = *reinterpret_cast<SoftmaxState*>(state);
    float* sum = state + 2 * kPanelLines;
    const float* factors = nullptr;
    if (dropout.draws != nullptr) {
      float* made = factors_.of_size(panels * kSquare);
      dropout_factors(dropout.from(0, begin * kPanelLines), rows, panels * kPanelLines, made);
      factors = made;
    }
    alignas(64) std::array<float, kPanelLines> rescale;
    units_.softmax(scores, factors, panels, band.from(0, begin * kPanelLines), cap_ > 0 ? 1.0f : scale_,
                   is_first, softmax, rescale.data(), numerators_.at(0));
    if (!is_first) units_.scale_columns(sum, rescale.data(), head_dim_);
    for (int64_t i = 0; i < v_turned_.panels(); ++i) {
      units_.multiply_panel(v_turned_.at(i, begin), numerators_.at(0), panels, !is_first, sum + i * kSquare,
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
  float scale_, cap_;
  UnitSession session_{units_.isa};
  int64_t num_keys_ = 0;
  Operand<T> k_{units_}, v_turned_{units_}, q_{units_}, numerators_{units_};
  Buffer<float> scores_, factors_;
};

template <class T>
class BackwardPanels final : public BackwardBlocks<T> {
 public:
  BackwardPanels(const Units<T>& units, int64_t head_dim, const ScoreFormula& formula)
      : units_(units),
        head_dim_(head_dim),
        scale_(static_cast<float>(formula.scale)),
        cap_(static_cast<float>(formula.soft_cap)) {}

  int64_t max_queries() const override { return units_.backward_queries; }
  int64_t state_size() const override { return max_queries() / kPanelLines * panels_of(head_dim_) * kSquare; }

  void set_keys(HeadRows<const T> k, HeadRows<const T> v, int64_t count) override {
    num_keys_ = count;
    k_.pack(Side::Left, depth_along(k), count, head_dim_);
    v_.pack(Side::Left, depth_along(v), count, head_dim_);
    k_turned_.pack(Side::Left, depth_across(k), head_dim_, count);
  }

  void differentiate(const BackwardQueries<T>& queries, const KeyBand& all, const PairDropout& dropout,
                     bool is_first, float* grad_k, float* grad_v, float* state) override {
    set_queries(queries);
    const KeyBand band = all.of_first(num_keys_);
    const int64_t width = panels_of(head_dim_), stride = grad_stride(head_dim_);
    p_.of_size(kPanelLines, queries.rows);
    g_.of_size(kPanelLines, queries.rows);
    g_turned_.of_size(queries.rows, num_keys_);
    const auto [first_key, last_key] = seen_panels(band, queries.rows);
    for (int64_t key = first_key; key < last_key; ++key) {
      const KeyBand of_key = band.from(0, key * kPanelLines);
      const IndexRange seeing = of_key.of_first(kPanelLines).queries_that_see(queries.rows);
      const int64_t begin = seeing.begin / kPanelLines, end = panels_of(seeing.end);
      // The products of scores run one panel ahead of the softmax, so that the tile units work beside the
      // vector units.
      multiply_scores(key, begin);
      for (int64_t query = begin; query < end; ++query) {
        if (query + 1 < end) multiply_scores(key, query + 1);
        float *scores = scores_[query % 2], *grads = grad_numerators_[query % 2];
        const float* delta = delta_ + query * kPanelLines;
        const float* factors = nullptr;
        if (dropout.draws != nullptr) {
          const int64_t first = query * kPanelLines, rows = std::min(kPanelLines, queries.rows - first);
          dropout_factors(dropout.from(first, key * kPanelLines), rows, kPanelLines, factors_);
          for (int64_t i = 0; i < kSquare; ++i) grads[i] *= factors_[i];
          factors = factors_;
        }
        if (cap_ > 0) {
          soft_cap_backward(scores, grads, kPanelLines, kPanelLines, kPanelLines, scale_, cap_, delta, 0, 1);
        }
        units_.softmax_backward(scores, grads, factors, of_key.from(query * kPanelLines, 0),
                                cap_ > 0 ? 1.0f : scale_, log_sum_ + query * kPanelLines, delta,
                                p_.at(0, query), g_.at(0, query), g_turned_.at(query, key));
      }
      const int64_t at = key * kPanelLines * stride;
      for (int64_t i = 0; i < width; ++i) {
        units_.multiply_panel(p_.at(0, begin), grad_turned_.at(i, begin), end - begin, true,
                              grad_v + at + i * kPanelLines, stride);
        units_.multiply_panel(g_.at(0, begin), q_turned_.at(i, begin), end - begin, true,
                              grad_k + at + i * kPanelLines, stride);
      }
    }
    for (int64_t query = 0; query < q_.panels(); ++query) {
      const int64_t first = query * kPanelLines, rows = std::min(kPanelLines, queries.rows - first);
      const auto [begin, end] = seen_panels(band.from(first, 0), rows);
      for (int64_t i = 0; i < width; ++i) {
        float* sum = state + (query * width + i) * kSquare;
        if (begin < end) {
          units_.multiply_panel(k_turned_.at(i, begin), g_turned_.at(query, begin), end - begin, !is_first,
                                sum, kPanelLines);
        } else if (is_first) {
          std::fill_n(sum, kSquare, 0.0f);
        }
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
  float scale_, cap_;
  UnitSession session_{units_.isa};
  int64_t num_keys_ = 0;
  Operand<T> k_{units_}, v_{units_}, k_turned_{units_}, q_{units_}, q_turned_{units_}, grad_{units_},
      grad_turned_{units_}, p_{units_}, g_{units_}, g_turned_{units_};
  alignas(64) float scores_[2][kSquare], grad_numerators_[2][kSquare], factors_[kSquare];
  alignas(64) float log_sum_[kMaxQueries], delta_[kMaxQueries];
};

}  // namespace

template <class T>
std::unique_ptr<ForwardBlocks<T>> make_forward_panels(int64_t head_dim, const ScoreFormula& formula) {
  if constexpr (!std::is_same_v<T, double>) {
    if (const Units<T>* best = units<T>())
      return std::make_unique<ForwardPanels<T>>(*best, head_dim, formula);
  }
  return nullptr;
}
template <class T>
std::unique_ptr<BackwardBlocks<T>> make_backward_panels(int64_t head_dim, const ScoreFormula& formula) {
  if constexpr (!std::is_same_v<T, double>) {
    if (const Units<T>* best = units<T>())
      return std::make_unique<BackwardPanels<T>>(*best, head_dim, formula);
  }
  return nullptr;
}

#define TESSERA_INSTANTIATE(T)                                                                     \
  template std::unique_ptr<ForwardBlocks<T>> make_forward_panels<T>(int64_t, const ScoreFormula&); \
  template std::unique_ptr<BackwardBlocks<T>> make_backward_panels<T>(int64_t, const ScoreFormula&);
TESSERA_INSTANTIATE(float)
TESSERA_INSTANTIATE(double)
TESSERA_INSTANTIATE(kernels::Bf16)
#undef TESSERA_INSTANTIATE

}  // namespace tessera::ops
