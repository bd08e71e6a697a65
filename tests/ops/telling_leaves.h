// The host's leaves, which also do what a device's kernels do for products in e4m3: they give the scale of
// their results (keep_e4m3_scale()). Every scale that a cast gets is compared with that of the tensor's
// values, and casts are counted.
#pragma once

#include <gtest/gtest.h>

#include "tessera/ops/leaf.h"
#include "tessera/ops/support.h"

namespace tessera::ops {

// Number of calls of to_e4m3, and of those that had to look for the absmax.
struct Casts {
  int all = 0, absmax = 0;
  auto operator<=>(const Casts&) const = default;
};
inline Casts casts;

// Leaves that only count and compare: none gives the scale of its result.
inline const Leaves& counting_leaves() {
  static const Leaves kLeaves = [] {
    Leaves made = host_leaves();
    made.to_e4m3 = [](const at::Tensor& x, const at::Tensor& scale) {
      ++casts.all;
      const E4m3Matrix looked = host_leaves().to_e4m3(x, {});
      if (!scale.defined()) {
        ++casts.absmax;
        return looked;
      }
      EXPECT_TRUE(at::equal(scale, looked.scale) || scale.isnan().all().item<bool>())
          << "a scale of other numbers: " << scale.item<float>() << ", need " << looked.scale.item<float>();
      return host_leaves().to_e4m3(x, scale);
    };
    return made;
  }();
  return kLeaves;
}

inline void tell(const at::Tensor& x) {
  if (product_type() == ProductType::E4m3 && x.defined() && x.scalar_type() == at::kBFloat16 && x.numel() > 0)
    keep_e4m3_scale(x, host_leaves().to_e4m3(flatten_rows(x), {}).scale);
}

inline const Leaves& telling_leaves() {
  static const Leaves kLeaves = [] {
    Leaves made = counting_leaves();
    made.rms_norm = [](const at::Tensor& x, const at::Tensor& delta, const at::Tensor& weight, double eps) {
      const NormedRows rows = host_leaves().rms_norm(x, delta, weight, eps);
      tell(rows.y);
      return rows;
    };
    made.rms_norm_backward = [](const at::Tensor& grad, const at::Tensor& grad_residual, const at::Tensor& x,
                                const at::Tensor& weight, const at::Tensor& inverse_rms, bool want_x,
                                bool want_weight) {
      const auto gradients =
          host_leaves().rms_norm_backward(grad, grad_residual, x, weight, inverse_rms, want_x, want_weight);
      tell(gradients.first);
      return gradients;
    };
    made.rope = [](const at::Tensor& from, const at::Tensor& cos, const at::Tensor& sin, const RopeForm& form,
                   int direction, const at::Tensor& to) {
      host_leaves().rope(from, cos, sin, form, direction, to);
      if (direction < 0) tell(to);
    };
    made.activate_mlp = [](Nonlinearity f, const MlpInputs& inputs) {
      const at::Tensor y = host_leaves().activate_mlp(f, inputs);
      tell(y);
      return y;
    };
    made.activate_mlp_backward = [](Nonlinearity f, const at::Tensor& grad, const MlpInputs& inputs,
                                    bool want_gate, bool want_up) {
      const MlpInputs gradients = host_leaves().activate_mlp_backward(f, grad, inputs, want_gate, want_up);
      tell(gradients.gate);
      tell(gradients.up);
      return gradients;
    };
    return made;
  }();
  return kLeaves;
}

}  // namespace tessera::ops
