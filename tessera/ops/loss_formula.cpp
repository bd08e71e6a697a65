#include "tessera/ops/loss_formula.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "tessera/ops/host.h"
#include "tessera/ops/plain.h"
#include "tessera/ops/support.h"

namespace tessera::ops {

void combine_parts(const at::Tensor& sums, const VocabularyPart& part) {
  // The sums of exponentials are taken relative to the largest of all parts, so that none overflows.
  const at::Tensor log_sums = sums.select(0, 0), largest = log_sums.clone();
  part.all_max(largest);
  log_sums.sub_(largest).exp_();
  part.all_sum(sums);
  log_sums.log_().add_(largest);
}

void plain::cross_entropy(const at::Tensor& logits, const at::Tensor& labels, const at::Tensor& losses,
                          bool in_place, const LossFormula& formula) {
  const at::ScalarType exact = compute_type(logits.scalar_type());
  const int64_t count = logits.size(0), width = logits.size(1);
  const at::Tensor sums = at::zeros({formula.smooths() ? 3 : 2, count}, logits.options().dtype(exact));
  const at::Tensor log_sums = sums.select(0, 0), targets = sums.select(0, 1);
  const at::Tensor wide = logits.to(exact), place = labels - formula.first_token();
  const at::Tensor is_held = place.ge(0).bitwise_and(place.lt(width));
  const at::Tensor column = place.clamp(0, std::max<int64_t>(width - 1, 0)).unsqueeze(1);
  log_sums.copy_(at::logsumexp(wide, 1));
  if (width > 0) targets.copy_(at::where(is_held, wide.gather(1, column).squeeze(1), targets));
  if (formula.smooths()) sums.select(0, 2).copy_(wide.sum(1));
  if (formula.part != nullptr) combine_parts(sums, *formula.part);
  losses.copy_(log_sums.to(at::kDouble) - targets.to(at::kDouble));
  if (formula.has_z_loss()) losses.add_(formula.z_loss(log_sums.to(at::kDouble)));
  if (formula.smooths()) {
    losses.add_(targets.to(at::kDouble), formula.terms.label_smoothing);
    losses.sub_(sums.select(0, 2).to(at::kDouble), formula.smoothing_of_token());
  }
  if (!in_place || width == 0) return;
  at::Tensor softmax = at::exp(wide - log_sums.unsqueeze(1));
  // expm1 keeps the label's gradient exact if its probability is near 1.
  at::Tensor of_target = at::expm1(targets - log_sums);
  if (formula.has_z_loss()) {
    const at::Tensor slope = formula.z_slope(log_sums);
    softmax.add_(softmax * slope.unsqueeze(1));
    of_target.add_(at::exp(targets - log_sums).mul_(slope));
  }
  logits.copy_(softmax);
  const at::Tensor minus_one = of_target.to(logits.scalar_type());
  const at::Tensor kept = logits.gather(1, column).squeeze(1);
  at::Tensor gradients = logits;
  gradients.scatter_(1, column, at::where(is_held, minus_one, kept).unsqueeze(1));
  if (!formula.smooths()) return;
  gradients.sub_(formula.smoothing_of_token());
  gradients.scatter_add_(1, column,
                         is_held.to(logits.scalar_type()).mul_(formula.terms.label_smoothing).unsqueeze(1));
}

namespace {

// Rows of logits of type T, whose losses are computed, and whose gradients may take their place.
template <class T>
struct LossRows {
  using C = kernels::ComputeType<T>;

  const LossFormula& formula;
  const int64_t width;
  T* const logits;
  const int64_t* const labels;
  C *const log_sums, *const targets, *const totals;  // as in combine_parts()
  double* const losses;

  // Returns the address of the label's logit, or null if the label is not among these columns.
  T* target_of(int64_t row) const {
    const int64_t place = labels[row] - formula.first_token();
    return place >= 0 && place < width ? logits + row * width + place : nullptr;
  }

  static T rounded(C value) {
    if constexpr (std::is_same_v<T, kernels::Bf16>) {
      return kernels::to_bf16(value);
    } else {
      return value;
    }
  }

  void sum_up(int64_t row) const {
    const T *values = logits + row * width, *target = target_of(row);
    log_sums[row] = width > 0 ? kernels::log_sum_exp(values, width) : -std::numeric_limits<C>::infinity();
    targets[row] = target == nullptr ? C(0) : widened(*target);
    if (!formula.smooths()) return;
    double total = 0.0;
    for (int64_t i = 0; i < width; ++i) total += static_cast<double>(widened(values[i]));
    totals[row] = static_cast<C>(total);
  }

  // Writes the loss of a row, when the sums are those over all parts of the vocabulary.
  void write_loss(int64_t row) const {
    const auto log_sum = static_cast<double>(log_sums[row]), target = static_cast<double>(targets[row]);
    losses[row] = log_sum - target;
    if (formula.smooths()) {
      losses[row] += formula.terms.label_smoothing * target -
                     formula.smoothing_of_token() * static_cast<double>(totals[row]);
    }
    if (formula.has_z_loss()) losses[row] += formula.z_loss(log_sum);
  }

  // Writes the gradients of a row in place of its logits.
  void write_gradient(int64_t row) const {
    T *values = logits + row * width, *target = target_of(row);
    kernels::shifted_exp(values, log_sums[row], width);
    // expm1 keeps the label's gradient exact if its probability is near 1.
    C of_target = std::expm1(targets[row] - log_sums[row]);
    if (formula.has_z_loss()) {
      const C slope = static_cast<C>(formula.z_slope(static_cast<double>(log_sums[row])));
      for (int64_t i = 0; i < width; ++i) values[i] = rounded(widened(values[i]) * (C(1) + slope));
      of_target += slope * std::exp(targets[row] - log_sums[row]);
    }
    if (target != nullptr) *target = rounded(of_target);
    if (!formula.smooths()) return;
    const C of_token = static_cast<C>(formula.smoothing_of_token());
    for (int64_t i = 0; i < width; ++i) values[i] = rounded(widened(values[i]) - of_token);
    if (target != nullptr)
      *target = rounded(widened(*target) + static_cast<C>(formula.terms.label_smoothing));
  }
};

}  // namespace

void host::cross_entropy(const at::Tensor& logits, const at::Tensor& labels, const at::Tensor& losses,
                         bool in_place, const LossFormula& formula) {
  const int64_t count = logits.size(0), width = logits.size(1);
  const at::Tensor sums = at::empty({formula.smooths() ? 3 : 2, count},
                                    logits.options().dtype(compute_type(logits.scalar_type())));
  dispatch(logits.scalar_type(), [&](auto tag) {
    using T = decltype(tag);
    auto* log_sums = write<kernels::ComputeType<T>>(sums);
    const LossRows<T> rows = {formula,
                              width,
                              write<T>(logits),
                              read<int64_t>(labels),
                              log_sums,
                              log_sums + count,
                              log_sums + 2 * count,
                              write<double>(losses)};
    const auto finish = [&](int64_t row) {
      rows.write_loss(row);
      if (in_place) rows.write_gradient(row);
    };
    at::parallel_for(0, count, rows_per_task(width), [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        rows.sum_up(row);
        // Over parts, rows are finished when all holders have combined their sums.
        if (formula.part == nullptr) finish(row);
      }
    });
    if (formula.part == nullptr) return;
    combine_parts(sums, *formula.part);
    at::parallel_for(0, count, rows_per_task(width), [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) finish(row);
    });
  });
}

at::Tensor host::sum_losses(const at::Tensor& losses) {
  double sum = 0;
  for (int64_t i = 0; i < losses.numel(); ++i) sum += read<double>(losses)[i];
  return at::scalar_tensor(sum, losses.options());
}

}  // namespace tessera::ops
