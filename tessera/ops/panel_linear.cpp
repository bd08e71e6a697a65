#include "tessera/ops/panel_linear.h"

#include <algorithm>
#include <memory>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "tessera/ops/host.h"
#include "tessera/ops/kernels/coded_matrix.h"
#include "tessera/ops/product_units.h"
#include "tessera/ops/support.h"

namespace tessera::ops {
namespace {

// Threads get rows of the weights in tiles of this many, which lie in the second-level cache while all panels
// of x meet them.
constexpr int64_t kTile = 16;
// The number of weights that is worth a thread of its own.
constexpr int64_t kMinWeights = 32768;

// The rows of a layer's weight: in one of three forms, in which they can be read where they lie, or as
// floats.
class LayerRows {
 public:
  explicit LayerRows(const Weight& weight) : in_(weight.size(1)) {
    if (weight.is_coded()) {
      coded_ = {*weight.form(), read<uint8_t>(weight.stored()), weight.stored().stride(0)};
    } else if (weight.stored().scalar_type() == at::kFloat) {
      floats_ = read<float>(weight.values());
    } else {
      narrow_ = read<kernels::Bf16>(weight.values());
    }
  }
  // Return rows from `first` on as they lie; null if they do not in this form.
  const float* floats(int64_t first) const { return floats_ == nullptr ? nullptr : floats_ + first * in_; }
  const kernels::Bf16* narrow(int64_t first) const {
    return narrow_ == nullptr ? nullptr : narrow_ + first * in_;
  }
  // Returns coded rows from `first` on; only for weights of neither of these forms.
  kernels::CodedMatrix coded(int64_t first) const {
    return {coded_.form, coded_.row(first), coded_.row_bytes};
  }
  // Returns rows [first, first + count), which are made in `scratch` unless they lie there as floats.
  const float* as_floats(int64_t first, int64_t count, float* scratch) const {
    if (floats_ != nullptr) return floats(first);
    if (narrow_ != nullptr) {
      kernels::widen(narrow(first), scratch, count * in_);
    } else {
      for (int64_t i = 0; i < count; ++i)
        kernels::read_coded_row(coded_, first + i, 0, in_, scratch + i * in_);
    }
    return scratch;
  }

 private:
  int64_t in_;
  const float* floats_ = nullptr;
  const kernels::Bf16* narrow_ = nullptr;
  kernels::CodedMatrix coded_;
};

}  // namespace

bool is_panel_linear(const at::Tensor& x, const Weight& weight) {
  const int64_t in = weight.size(1);
  if (x.scalar_type() != at::kFloat || in == 0 || x.numel() > kPanelLinearRows * in) return false;
  const at::ScalarType stored = weight.stored().scalar_type();
  if (!weight.is_coded() && stored != at::kFloat && stored != at::kBFloat16) return false;
  const kernels::Units<float>* const units = product_units<float>();
  return units != nullptr && units->multiply_plain != nullptr && weight.stored().is_contiguous();
}

std::vector<at::Tensor> panel_linears(const at::Tensor& x_in, const std::vector<LinearOperands>& layers) {
  const kernels::Units<float>& units = *product_units<float>();
  const at::Tensor x = x_in.contiguous();
  const int64_t in = layers.front().weight.size(1), rows = x.numel() / in;
  std::vector<int64_t> sizes = x.sizes().vec();
  std::vector<at::Tensor> results, biases;
  std::vector<int64_t> first_tiles = {0};
  for (const auto& [weight, bias] : layers) {
    sizes.back() = weight.size(0);
    results.push_back(at::empty(sizes, x.options().requires_grad(false)));
    biases.push_back(bias ? bias->to(at::kFloat).contiguous() : at::Tensor());
    first_tiles.push_back(first_tiles.back() + (weight.size(0) + kTile - 1) / kTile);
  }
  const bool is_few = rows <= kernels::kTileLines;
  const int64_t panels = is_few ? 0 : kernels::panels_of(rows);
  const int64_t panel_bytes = kernels::blocks_of(in) * units.block_bytes;
  const at::Tensor packed =
      at::empty({is_few ? in * kernels::kTileLines * 4 : panels * panel_bytes}, x.options().dtype(at::kByte));
  char* const panel = reinterpret_cast<char*>(write<uint8_t>(packed));
  float* const few = reinterpret_cast<float*>(panel);
  if (is_few) {
    units.pack_few(read<float>(x), in, rows, in, few);
  } else {
    units.pack(kernels::Side::Right, {read<float>(x), in, true}, rows, in, panel, panel_bytes);
  }
  // Multiplies `count` rows of weights as they lie, if x has few rows and the form of the weights is known.
  const auto multiply_as_they_lie = [&](const LayerRows& weight, int64_t at, int64_t count, const float* bias,
                                        float* y, int64_t outs) {
    if (!is_few) return false;
    if (const float* const floats = weight.floats(at)) {
      units.multiply_few(floats, in, count, few, rows, in, bias, y, outs);
    } else if (const kernels::Bf16* const narrow = weight.narrow(at)) {
      units.multiply_few_bf16(narrow, in, count, few, rows, in, bias, y, outs);
    } else {
      return units.multiply_few_coded(weight.coded(at), count, few, rows, in, bias, y, outs);
    }
    return true;
  };
  const auto run = [&](int64_t begin, int64_t end) {
    std::unique_ptr<float[]> scratch;
    for (size_t i = 0; i < layers.size(); ++i) {
      const LayerRows weight(layers[i].weight);
      const int64_t outs = layers[i].weight.size(0);
      const int64_t first = (std::max(begin, first_tiles[i]) - first_tiles[i]) * kTile;
      const int64_t last = std::min((std::min(end, first_tiles[i + 1]) - first_tiles[i]) * kTile, outs);
      if (first >= last) continue;
      const float* const bias = biases[i].defined() ? read<float>(biases[i]) : nullptr;
      const auto bias_at = [&](int64_t at) { return bias == nullptr ? nullptr : bias + at; };
      float* const y = write<float>(results[i]);
      if (multiply_as_they_lie(weight, first, last - first, bias_at(first), y + first, outs)) continue;
      if (scratch == nullptr && weight.floats(0) == nullptr)
        scratch = std::make_unique_for_overwrite<float[]>(static_cast<size_t>(kTile * in));
      for (int64_t at = first; at < last; at += kTile) {
        const int64_t count = std::min(kTile, last - at);
        const float* const from = weight.as_floats(at, count, scratch.get());
        if (is_few) units.multiply_few(from, in, count, few, rows, in, bias_at(at), y + at, outs);
        for (int64_t p = 0; p < panels; ++p) {
          const int64_t row = p * kernels::kPanelLines;
          units.multiply_plain(from, in, panel + p * panel_bytes, in, bias_at(at), y + row * outs + at, outs,
                               count, std::min(kernels::kPanelLines, rows - row));
        }
      }
    }
  };
  at::parallel_for(0, first_tiles.back(), std::max<int64_t>(1, kMinWeights / (kTile * in)), run);
  return results;
}

}  // namespace tessera::ops
