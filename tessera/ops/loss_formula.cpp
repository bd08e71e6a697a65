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

void host::cross_entropy(const at::Tensor& logits, const at::Tensor& labels_in, const at::Tensor& losses_in,
                         bool in_place, const LossFormula& formula) {
  const auto* labels = read<int64_t>(labels_in);
  auto* losses = write<double>(losses_in);
  const int64_t count = logits.size(0), width = logits.size(1);
  const int64_t first_token = formula.first_token();
  const at::Tensor sums = at::empty({formula.smooths() ? 3 : 2, count},
                                    logits.options().dtype(compute_type(logits.scalar_type())));
  dispatch(logits.scalar_type(), [&](auto tag) {
    using T = decltype(tag);
    using C = kernels::ComputeType<T>;
    T* data = write<T>(logits);
    C *log_sums = write<C>(sums), *targets = log_sums + count, *totals = targets + count;
    // Returns the address of the label's logit, or null if the label is not among these columns.
    const auto target_of = [&](int64_t row) {
      const int64_t place = labels[row] - first_token;
      return place >= 0 && place < width ? data + row * width + place : nullptr;
    };
    const auto read_row = [&](int64_t row) {
      log_sums[row] =
          width > 0 ? kernels::log_sum_exp(data + row * width, width) : -std::numeric_limits<C>::infinity();
      const T* target = target_of(row);
      targets[row] = target == nullptr ? C(0) : widened(*target);
      if (!formula.smooths()) return;
      double total = 0.0;
      for (int64_t i = 0; i < width; ++i) total += static_cast<double>(widened(data[row * width + i]));
      totals[row] = static_cast<C>(total);
    };
    const auto rounded = [](C value) {
      if constexpr (std::is_same_v<T, kernels::Bf16>) {
        return kernels::to_bf16(value);
      } else {
        return value;
      }
    };
    // Takes the smoothed target off a row of gradients. target: the label's column, or null.
    const auto smooth = [&](T* row, T* target) {
      const C of_token = static_cast<C>(formula.smoothing_of_token());
      for (int64_t i = 0; i < width; ++i) row[i] = rounded(widened(row[i]) - of_token);
      if (target != nullptr)
        *target = rounded(widened(*target) + static_cast<C>(formula.terms.label_smoothing));
    };
    const auto finish_row = [&](int64_t row) {
      losses[row] = static_cast<double>(log_sums[row]) - static_cast<double>(targets[row]);
      if (formula.smooths()) {
        losses[row] += formula.terms.label_smoothing * static_cast<double>(targets[row]) -
                       formula.smoothing_of_token() * static_cast<double>(totals[row]);
      }
      if (formula.has_z_loss()) losses[row] += formula.z_loss(static_cast<double>(log_sums[row]));
      if (!in_place) return;
      kernels::shifted_exp(data + row * width, log_sums[row], width);
      T* target = target_of(row);
      // expm1 keeps the label's gradient exact if its probability is near 1.
      C of_target = std::expm1(targets[row] - log_sums[row]);
      if (formula.has_z_loss()) {
        const C slope = static_cast<C>(formula.z_slope(static_cast<double>(log_sums[row])));
        T* values = data + row * width;
        for (int64_t i = 0; i < width; ++i) values[i] = rounded(widened(values[i]) * (C(1) + slope));
        of_target += slope * std::exp(targets[row] - log_sums[row]);
      }
      if (target != nullptr) *target = rounded(of_target);
      if (formula.smooths()) smooth(data + row * width, target);
    };
    at::parallel_for(0, count, rows_per_task(width), [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        read_row(row);
        // Over parts, rows are finished when all holders have combined their sums.
        if (formula.part == nullptr) finish_row(row);
      }
    });
    if (formula.part == nullptr) return;
    combine_parts(sums, *formula.part);
    at::parallel_for(0, count, rows_per_task(width), [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) finish_row(row);
    });
  });
}

at::Tensor host::sum_losses(const at::Tensor& losses) {
  double sum = 0;
  for (int64_t i = 0; i < losses.numel(); ++i) sum += read<double>(losses)[i];
  return at::scalar_tensor(sum, losses.options());
}

}  // namespace tessera::ops
