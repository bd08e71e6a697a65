#include "tessera/nn/alibi.h"

#include <bit>
#include <cmath>

#include <ATen/ATen.h>

#include "tessera/device/device.h"
#include "tessera/device/device_copy.h"

namespace tessera::nn {
namespace {

// Returns 2^(-most i / count) for i = first, first + step, ... up to `count`.
std::vector<double> powers(double most, int64_t count, int64_t first, int64_t step) {
  std::vector<double> slopes;
  for (int64_t i = first; i <= count; i += step)
    slopes.push_back(std::exp2(-most * static_cast<double>(i) / static_cast<double>(count)));
  return slopes;
}

// Appends `more` to `slopes` and returns the first `heads`.
std::vector<double> joined(std::vector<double> slopes, const std::vector<double>& more, int64_t heads) {
  slopes.insert(slopes.end(), more.begin(), more.end());
  slopes.resize(static_cast<size_t>(heads));
  return slopes;
}

// The elements of keys that add up to the bias, as exactly as those of a narrow type can: each holds what
// those before leave.
constexpr int64_t kTerms = 3;
static_assert(kTerms <= kAlibiElements);

}  // namespace

std::vector<double> alibi_slopes(int64_t heads) {
  const auto whole = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(heads)));
  return joined(powers(8.0, whole, 1, 1), powers(8.0, 2 * whole, 1, 2), heads);
}

std::vector<double> mpt_alibi_slopes(int64_t heads, double most) {
  const auto whole = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(heads)));
  if (whole == heads) return powers(most, whole, 1, 1);
  return joined(powers(most, whole, 2, 2), powers(most, whole, 1, 2), heads);
}

at::Tensor Alibi::slopes_on(c10::Device device, at::ScalarType type) const {
  const auto make = [&] {
    const at::Tensor exact = at::tensor(options_.slopes, on_host(at::kDouble));
    return copy_to((options_.is_rounded ? exact.to(at::kBFloat16) : exact).to(type), device);
  };
  if (!has_streams(device)) return make();
  const std::lock_guard<std::mutex> lock(mutex_);
  at::Tensor& there = there_[{device.type(), device.index(), type}];
  if (!there.defined()) there = make();
  return there;
}

at::Tensor Alibi::table(const at::Tensor& position_ids, at::ScalarType model_dtype) const {
  const at::NoGradGuard no_grad;
  const at::ScalarType type = model_dtype == at::kDouble ? at::kDouble : at::kFloat;
  const at::Tensor slopes = slopes_on(position_ids.device(), type);
  const at::Tensor positions = position_ids.to(type).unsqueeze(1);
  if (!options_.is_rounded) return positions * slopes;
  return (positions.to(at::kBFloat16).to(type) * slopes).to(at::kBFloat16).to(type);
}

std::array<at::Tensor, 3> with_biases(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                      const at::Tensor& bias) {
  const at::Tensor ones = at::ones({q.size(0), q.size(1), kTerms}, q.options());
  std::vector<at::Tensor> terms;
  at::Tensor left = bias;
  for (int64_t i = 0; i < kTerms; ++i) {
    terms.push_back(left.to(k.scalar_type()));
    left = left - terms.back().to(left.scalar_type());
  }
  constexpr int64_t kRest = kAlibiElements - kTerms;
  return {at::constant_pad_nd(at::cat({q, ones}, 2), {0, kRest}),
          at::constant_pad_nd(at::cat({k, at::stack(terms, 2)}, 2), {0, kRest}),
          at::constant_pad_nd(v, {0, kAlibiElements})};
}

}  // namespace tessera::nn
