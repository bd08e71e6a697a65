#include "tessera/ops/panel_linear.h"

#include <algorithm>
#include <memory>
#include <vector>

#include <ATen/ATen.h>

#include "tessera/ops/coded_rows.h"
#include "tessera/ops/layer_tiles.h"
#include "tessera/ops/product_units.h"

namespace tessera::ops {
namespace {

// Threads get rows of the weights in tiles of this many, which lie in the second-level cache while all panels
// of x meet them.
constexpr int64_t kTile = 16;
// The rows of a layer's weight: in one of three forms, in which they can be read where they lie, or as
// floats.
class LayerRows {
 public:
  explicit LayerRows(const Weight& weight) : in_(weight.size(1)) {
    if (weight.is_coded()) {
      coded_ = coded_matrix(weight);
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
      read_coded_rows(coded_, first, count, in_, scratch);
    }
    return scratch;
  }
  // Returns rows [first, first + count) as they lie, unless they are floats.
  kernels::Ahead ahead(int64_t first, int64_t count) const {
    if (floats_ != nullptr) return {};
    if (narrow_ != nullptr) return {reinterpret_cast<const char*>(narrow(first)), count * in_ * 2};
    return {reinterpret_cast<const char*>(coded_.row(first)), count * coded_.row_bytes};
  }

 private:
  int64_t in_;
  const float* floats_ = nullptr;
  const kernels::Bf16* narrow_ = nullptr;
  kernels::CodedMatrix coded_;
};

// Tells whether all layers are multiplied in digits ([Note: digits]).
bool have_digits(const kernels::Units<float>& units, const std::vector<LinearOperands>& layers) {
  return units.has_digit_form != nullptr && std::ranges::all_of(layers, [&](const LinearOperands& layer) {
           return layer.weight.is_coded() && units.has_digit_form(*layer.weight.form());
         });
}
static_assert(kPanelLinearRows <= kernels::kMostDigitRows);

// The rows of x [rows, in], packed for the kernels: in digits, a few of them side by side, or in panels.
class PackedRows {
 public:
  PackedRows(const at::Tensor& x, int64_t in, const std::vector<LinearOperands>& layers)
      : units_(*product_units<float>()),
        in_(in),
        rows_(x.numel() / in),
        are_digits_(have_digits(units_, layers)),
        is_few_(rows_ <= most_few(layers.front().weight.is_coded())),
        panels_(is_few_ ? 0 : kernels::panels_of(rows_)),
        panel_bytes_(kernels::blocks_of(in) * units_.block_bytes),
        packed_(at::empty({bytes()}, x.options().dtype(at::kByte))),
        panel_(reinterpret_cast<char*>(write<uint8_t>(packed_))) {
    if (are_digits_) {
      units_.pack_digits(read<float>(x), in, rows_, in, panel_);
    } else if (is_few_) {
      for_groups([&](float* group, int64_t first, int64_t rows) {
        units_.pack_few(read<float>(x) + first * in, in, rows, in, group);
      });
    } else {
      units_.pack(kernels::Side::Right, {read<float>(x), in, true}, rows_, in, panel_, panel_bytes_);
    }
  }

  // Multiplies by rows [at, at + count) of a weight of `outs` rows as they lie, if there is a kernel for
  // their form and this number of rows of x; returns whether it did. `bias` and `y` are those of the first of
  // these rows.
  bool multiply_as_they_lie(const LayerRows& weight, int64_t at, int64_t count, const float* bias, float* y,
                            int64_t outs) const {
    if (are_digits_) {
      units_.multiply_digits(weight.coded(at), count, panel_, rows_, in_, bias, y, outs);
      return true;
    }
    if (!is_few_) return false;
    bool is_done = true;
    for_groups([&](const float* group, int64_t first, int64_t rows) {
      float* const to = y + first * outs;
      if (const float* const floats = weight.floats(at)) {
        units_.multiply_few(floats, in_, count, group, rows, in_, bias, to, outs);
      } else if (const kernels::Bf16* const narrow = weight.narrow(at)) {
        units_.multiply_few_bf16(narrow, in_, count, group, rows, in_, bias, to, outs);
      } else {
        is_done = units_.multiply_few_coded(weight.coded(at), count, group, rows, in_, bias, to, outs);
      }
    });
    return is_done;
  }
  // Multiplies by `count` rows of a weight, [count, in], while what lies ahead is fetched. The rest is as
  // above.
  void multiply(const float* weight, int64_t count, const float* bias, float* y, int64_t outs,
                const kernels::Ahead& ahead) const {
    if (is_few_) {
      return for_groups([&](const float* group, int64_t first, int64_t rows) {
        units_.multiply_few(weight, in_, count, group, rows, in_, bias, y + first * outs, outs);
      });
    }
    for (int64_t p = 0; p < panels_; ++p) {
      const int64_t row = p * kernels::kPanelLines;
      units_.multiply_plain(weight, in_, panel_ + p * panel_bytes_, in_, bias, y + row * outs, outs, count,
                            std::min(kernels::kPanelLines, rows_ - row), p == 0 ? ahead : kernels::Ahead());
    }
  }

 private:
  int64_t bytes() const {
    if (are_digits_) return rows_ * (in_ / kernels::kDigitRun) * kernels::kDigitRunBytes;
    return is_few_ ? in_ * kernels::kTileLines * 4 : panels_ * panel_bytes_;
  }
  // Expanding codes costs more than reading them twice, so two groups of rows may meet them.
  int64_t most_few(bool are_coded) const {
    return are_coded ? std::min(kernels::kTileLines, 2 * units_.most_few_rows) : units_.most_few_rows;
  }
  // Calls f with each group of few rows, its first row and their number.
  template <class F>
  void for_groups(const F& f) const {
    const int64_t most = units_.most_few_rows;
    for (int64_t first = 0; first < rows_; first += most)
      f(reinterpret_cast<float*>(panel_) + first * in_, first, std::min(most, rows_ - first));
  }

  const kernels::Units<float>& units_;
  int64_t in_, rows_;
  bool are_digits_, is_few_;
  int64_t panels_, panel_bytes_;
  at::Tensor packed_;
  char* panel_;
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
  const at::Tensor x = x_in.contiguous();
  const int64_t in = layers.front().weight.size(1);
  const LayerTiles tiles(x, layers, at::kFloat, kTile);
  const PackedRows packed(x, in, layers);
  tiles.for_each([&] {
    return [&, scratch = std::unique_ptr<float[]>()](size_t i, int64_t first, int64_t last) mutable {
      const LayerRows weight(layers[i].weight);
      const int64_t outs = layers[i].weight.size(0);
      const float* const bias = tiles.bias(i).defined() ? read<float>(tiles.bias(i)) : nullptr;
      const auto bias_at = [&](int64_t at) { return bias == nullptr ? nullptr : bias + at; };
      float* const y = write<float>(tiles.results()[i]);
      if (packed.multiply_as_they_lie(weight, first, last - first, bias_at(first), y + first, outs)) return;
      if (scratch == nullptr && weight.floats(0) == nullptr)
        scratch = std::make_unique_for_overwrite<float[]>(static_cast<size_t>(kTile * in));
      for (int64_t at = first; at < last; at += kTile) {
        const int64_t count = std::min(kTile, last - at);
        const float* const rows = weight.as_floats(at, count, scratch.get());
        packed.multiply(rows, count, bias_at(at), y + at, outs,
                        weight.ahead(at + count, std::min(kTile, last - at - count)));
      }
    };
  });
  return tiles.results();
}

}  // namespace tessera::ops
