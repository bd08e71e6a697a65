#include "tessera/ops/delta_step.h"

#include <cmath>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "tessera/ops/leaf.h"
#include "tessera/ops/support.h"

namespace tessera::ops {
namespace {

constexpr double kNormEps = 1e-6;

// The token's operands of each value head, in the type of computation.
struct Step {
  at::Tensor q, k;            // [sequences, key heads, key_dim], normalised
  at::Tensor v;               // [sequences, value heads, value_dim]
  at::Tensor keep, strength;  // [sequences, value heads]
};

Step step_of(const DeltaInputs& in, const DeltaHead& head) {
  const auto type = compute_type(in.rows.scalar_type());
  const at::Tensor rows = in.rows.to(type);
  const auto normed = [](const at::Tensor& x) { return x * at::rsqrt(x.square().sum(-1, true) + kNormEps); };
  const double scale = 1.0 / std::sqrt(static_cast<double>(head.key_dim));
  const int64_t values = rows.size(2) - 2 * head.key_dim;
  return {(normed(rows.narrow(2, 0, head.key_dim)) * scale).contiguous(),
          normed(rows.narrow(2, head.key_dim, head.key_dim)).contiguous(),
          rows.narrow(2, 2 * head.key_dim, values)
              .reshape({rows.size(0), in.log_decay.size(1), head.value_dim})
              .contiguous(),
          in.log_decay.to(type).exp().contiguous(), in.strength.to(type).contiguous()};
}

// One head: `memory` is read and written, `out` written; `told` is scratch of value_dim elements.
template <class T>
void run_head(const T* q, const T* k, const T* v, T keep, T strength, const DeltaHead& head, T* memory,
              T* told, T* out) {
  const int64_t width = head.value_dim;
  for (int64_t j = 0; j < width; ++j) told[j] = out[j] = T(0);
  for (int64_t i = 0; i < head.key_dim; ++i) {
    T* const row = memory + i * width;
    for (int64_t j = 0; j < width; ++j) {
      row[j] *= keep;
      told[j] += row[j] * k[i];
    }
  }
  for (int64_t j = 0; j < width; ++j) told[j] = strength * (v[j] - told[j]);
  for (int64_t i = 0; i < head.key_dim; ++i) {
    T* const row = memory + i * width;
    for (int64_t j = 0; j < width; ++j) {
      row[j] += k[i] * told[j];
      out[j] += row[j] * q[i];
    }
  }
}

template <class T>
void run_on_host(const Step& step, const DeltaHead& head, const at::Tensor& memory, const at::Tensor& out) {
  const int64_t heads = step.v.size(1), values = heads / step.q.size(1),
                of_head = head.key_dim * head.value_dim;
  const T *q = read<T>(step.q), *k = read<T>(step.k), *v = read<T>(step.v), *keep = read<T>(step.keep),
          *strength = read<T>(step.strength);
  T *const s = write<T>(memory), *const to = write<T>(out);
  at::parallel_for(0, step.v.size(0) * heads, 4, [&](int64_t begin, int64_t end) {
    std::vector<T> told(static_cast<size_t>(head.value_dim));
    for (int64_t i = begin; i < end; ++i) {
      const int64_t key = i / values * head.key_dim;
      run_head(q + key, k + key, v + i * head.value_dim, keep[i], strength[i], head, s + i * of_head,
               told.data(), to + i * head.value_dim);
    }
  });
}

}  // namespace

std::pair<at::Tensor, at::Tensor> delta_step(const DeltaInputs& in, const DeltaHead& head,
                                             const at::Tensor& memory) {
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  const Step step = step_of(in, head);
  if (&leaves(step.v) == &host_leaves()) {
    const at::Tensor after = memory.clone(at::MemoryFormat::Contiguous), out = at::empty_like(step.v);
    step.v.scalar_type() == at::kDouble ? run_on_host<double>(step, head, after, out)
                                        : run_on_host<float>(step, head, after, out);
    return {out.to(in.rows.scalar_type()), after};
  }
  const int64_t values = step.v.size(1) / step.q.size(1);
  const auto of_values = [&](const at::Tensor& x) { return x.repeat_interleave(values, 1).unsqueeze(3); };
  const at::Tensor q = of_values(step.q), k = of_values(step.k);
  const at::Tensor kept = memory * step.keep.unsqueeze(2).unsqueeze(3);
  const at::Tensor written = step.strength.unsqueeze(2) * (step.v - (kept * k).sum(2));
  const at::Tensor after = kept + k * written.unsqueeze(2);
  return {(after * q).sum(2).to(in.rows.scalar_type()), after};
}

}  // namespace tessera::ops
