#include "tessera/optim/adamw_8bit.h"

#include <algorithm>
#include <cmath>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "tessera/device/device.h"
#include "tessera/device/host_memory.h"
#include "tessera/optim/dynamic_map.h"

namespace tessera::optim {
namespace detail {
namespace {

constexpr int64_t kGrain = 64;  // pieces of blocks that a thread takes at least
constexpr int kZero = 127;      // code of zero in the signed map

// The part of a block that lies in one row of a tile.
struct BlockPart {
  int64_t block, begin, size;  // elements [begin, begin + size) of the flat tile
};

std::vector<BlockPart> block_parts(const std::vector<int64_t>& shape, const parallel::Box& box) {
  std::vector<BlockPart> parts;
  for (const parallel::ElementRun& run : parallel::contiguous_runs(shape, box)) {
    for (int64_t done = 0; done < run.count;) {
      const int64_t number = run.global_begin + done;
      const int64_t size = std::min(run.count - done, kStateBlock - number % kStateBlock);
      parts.push_back({number / kStateBlock, run.local_begin + done, size});
      done += size;
    }
  }
  return parts;
}

// The new moments of element i, of a block with these scales.
template <class T>
struct Moments {
  const uint8_t *mean_codes, *square_codes;
  const T* gradient;
  T beta1, beta2;
  const std::array<float, 256>&mean_map = DynamicMap::of_signed().values(),
                          &square_map = DynamicMap::of_unsigned().values();

  explicit Moments(const Update8bit& u)
      : mean_codes(host_span<const uint8_t>(u.mean_codes).data()),
        square_codes(host_span<const uint8_t>(u.square_codes).data()),
        gradient(host_span<const T>(u.gradient).data()),
        beta1(static_cast<T>(u.beta1)),
        beta2(static_cast<T>(u.beta2)) {}
  T mean(int64_t i, float scale) const {
    return beta1 * (static_cast<T>(mean_map[mean_codes[i]]) * static_cast<T>(scale)) +
           (T(1) - beta1) * gradient[i];
  }
  T square(int64_t i, float scale) const {
    return beta2 * (static_cast<T>(square_map[square_codes[i]]) * static_cast<T>(scale)) +
           (T(1) - beta2) * gradient[i] * gradient[i];
  }
};

template <class T>
void measure_on_host(const Update8bit& u, const at::Tensor& largest) {
  const std::vector<BlockPart> parts = block_parts(u.shape, u.box);
  std::vector<T> of_mean(parts.size()), of_square(parts.size());
  const Moments<T> moments(u);
  const auto* mean_scales = host_span<const float>(u.mean_scales).data();
  const auto* square_scales = host_span<const float>(u.square_scales).data();
  at::parallel_for(0, std::ssize(parts), kGrain, [&](int64_t first, int64_t last) {
    for (int64_t p = first; p < last; ++p) {
      const BlockPart& part = parts[p];
      T mean = 0, square = 0;
      for (int64_t i = part.begin; i < part.begin + part.size; ++i) {
        mean = std::max(mean, std::abs(moments.mean(i, mean_scales[part.block])));
        square = std::max(square, moments.square(i, square_scales[part.block]));
      }
      of_mean[p] = mean;
      of_square[p] = square;
    }
  });
  double* const means = host_span<double>(largest).data();
  double* const squares = means + largest.size(1);
  for (size_t p = 0; p < parts.size(); ++p) {
    double &mean = means[parts[p].block], &square = squares[parts[p].block];
    mean = std::max(mean, static_cast<double>(of_mean[p]));
    square = std::max(square, static_cast<double>(of_square[p]));
  }
}

template <class T>
void apply_on_host(const Update8bit& u, const at::Tensor& mean_scales, const at::Tensor& square_scales) {
  const std::vector<BlockPart> parts = block_parts(u.shape, u.box);
  const Moments<T> moments(u);
  const DynamicMap &of_mean = DynamicMap::of_signed(), &of_square = DynamicMap::of_unsigned();
  const auto *old_means = host_span<const float>(u.mean_scales).data(),
             *old_squares = host_span<const float>(u.square_scales).data(),
             *new_means = host_span<const float>(mean_scales).data(),
             *new_squares = host_span<const float>(square_scales).data();
  auto *mean_codes = host_span<uint8_t>(u.mean_codes).data(),
       *square_codes = host_span<uint8_t>(u.square_codes).data();
  T* const value = host_span<T>(u.value).data();
  const auto t = static_cast<double>(u.step);
  const double correction = std::sqrt(1.0 - std::pow(u.beta2, t));
  const T step_size = static_cast<T>(u.lr * correction / (1.0 - std::pow(u.beta1, t)));
  const T epsilon = static_cast<T>(u.epsilon * correction),
          decay = static_cast<T>(1.0 - u.lr * u.weight_decay);
  at::parallel_for(0, std::ssize(parts), kGrain, [&](int64_t first, int64_t last) {
    for (int64_t p = first; p < last; ++p) {
      const BlockPart& part = parts[p];
      const T mean_scale = new_means[part.block], square_scale = new_squares[part.block];
      for (int64_t i = part.begin; i < part.begin + part.size; ++i) {
        const T mean = moments.mean(i, old_means[part.block]),
                square = moments.square(i, old_squares[part.block]);
        value[i] = (value[i] - step_size * (mean / (std::sqrt(square) + epsilon))) * decay;
        const uint8_t code = mean_scale > T(0) ? of_mean.encode(mean / mean_scale) : uint8_t{kZero};
        mean_codes[i] = mean < T(0) && code == kZero ? kZero - 1 : code;
        square_codes[i] = square_scale > T(0) ? of_square.encode(square / square_scale) : 0;
      }
    }
  });
}

at::Tensor on_device(std::span<const float> values, const at::Tensor& beside) {
  return at::from_blob(const_cast<float*>(values.data()), {std::ssize(values)}, on_host(at::kFloat))
      .to(beside.device(), /*dtype=*/at::kFloat, /*non_blocking=*/false, /*copy=*/true);
}

// Rows [begin, begin + count) of a tile, with the blocks of their elements.
struct PlainRows {
  at::Tensor value, mean_codes, square_codes, blocks, mean, square;  // flat

  PlainRows(const Update8bit& u, int64_t begin, int64_t count) {
    const auto rows = [&](const at::Tensor& x) { return x.narrow(0, begin, count).view({-1}); };
    value = rows(u.value);
    mean_codes = rows(u.mean_codes);
    square_codes = rows(u.square_codes);
    const at::Tensor gradient = rows(u.gradient);
    blocks = block_numbers(u, begin, count);
    const auto moment = [&](const at::Tensor& codes, const DynamicMap& map, const at::Tensor& scales) {
      return on_device(map.values(), value).index_select(0, codes.to(at::kInt)).to(value.scalar_type()) *
             scales.index_select(0, blocks).to(value.scalar_type());
    };
    mean = moment(mean_codes, DynamicMap::of_signed(), u.mean_scales)
               .mul_(u.beta1)
               .add_(gradient, 1.0 - u.beta1);
    square = moment(square_codes, DynamicMap::of_unsigned(), u.square_scales)
                 .mul_(u.beta2)
                 .addcmul_(gradient, gradient, 1.0 - u.beta2);
  }

  static at::Tensor block_numbers(const Update8bit& u, int64_t begin, int64_t count) {
    const auto options = at::TensorOptions(u.value.device()).dtype(at::kLong);
    at::Tensor numbers = at::arange(u.box.offset[0] + begin, u.box.offset[0] + begin + count, options);
    for (size_t d = 1; d < u.shape.size(); ++d) {
      numbers = numbers.unsqueeze(-1) * u.shape[d] +
                at::arange(u.box.offset[d], u.box.offset[d] + u.box.size[d], options);
    }
    return numbers.view({-1}).div_(kStateBlock, "floor");
  }
};

// Calls f(rows) for all rows of the tile, so many at a time that temporary tensors stay small.
template <class F>
void for_rows(const Update8bit& u, const F& f) {
  constexpr int64_t kElements = int64_t{1} << 22;
  const int64_t rows = u.value.size(0);
  const int64_t at_once = std::max<int64_t>(1, kElements / std::max<int64_t>(1, u.value.numel() / rows));
  for (int64_t begin = 0; begin < rows; begin += at_once)
    f(PlainRows(u, begin, std::min(at_once, rows - begin)));
}

}  // namespace

void plain_measure_8bit(const Update8bit& u, const at::Tensor& largest) {
  for_rows(u, [&](const PlainRows& rows) {
    largest.select(0, 0).scatter_reduce_(0, rows.blocks, rows.mean.abs().to(at::kDouble), "amax");
    largest.select(0, 1).scatter_reduce_(0, rows.blocks, rows.square.to(at::kDouble), "amax");
  });
}

void plain_apply_8bit(const Update8bit& u, const at::Tensor& mean_scales, const at::Tensor& square_scales) {
  const auto t = static_cast<double>(u.step);
  const double correction = std::sqrt(1.0 - std::pow(u.beta2, t));
  const double step_size = u.lr * correction / (1.0 - std::pow(u.beta1, t));
  for_rows(u, [&](const PlainRows& rows) {
    rows.value.addcdiv_(rows.mean, rows.square.sqrt().add_(u.epsilon * correction), -step_size)
        .mul_(1.0 - u.lr * u.weight_decay);
    const auto encode = [&](const at::Tensor& x, const DynamicMap& map, const at::Tensor& scales) {
      const at::Tensor scale = scales.index_select(0, rows.blocks).to(x.scalar_type());
      const at::Tensor borders = on_device(map.borders(), x).to(x.scalar_type());
      return at::searchsorted(borders, at::where(scale.gt(0), x / scale, at::zeros_like(x)));
    };
    const at::Tensor codes = encode(rows.mean, DynamicMap::of_signed(), mean_scales);
    rows.mean_codes.copy_(codes.sub_(rows.mean.lt(0).logical_and_(codes.eq(kZero)).to(codes.scalar_type())));
    rows.square_codes.copy_(encode(rows.square, DynamicMap::of_unsigned(), square_scales));
  });
}

void measure_8bit(const Update8bit& u, const at::Tensor& largest) {
  if (u.value.is_meta()) return;
  if (!is_on_host(u.value)) return plain_measure_8bit(u, largest);
  if (u.value.scalar_type() == at::kDouble) return measure_on_host<double>(u, largest);
  measure_on_host<float>(u, largest);
}

void apply_8bit(const Update8bit& u, const at::Tensor& mean_scales, const at::Tensor& square_scales) {
  if (u.value.is_meta()) return;
  if (!is_on_host(u.value)) return plain_apply_8bit(u, mean_scales, square_scales);
  if (u.value.scalar_type() == at::kDouble) return apply_on_host<double>(u, mean_scales, square_scales);
  apply_on_host<float>(u, mean_scales, square_scales);
}

}  // namespace detail

namespace {

class AdamW8bitRule : public Rule {
 public:
  explicit AdamW8bitRule(const OptimizerOptions& options) : o_(options) {}
  std::vector<RuleState> states(const RuleParameter& parameter) const override {
    const std::vector<int64_t> blocks = {num_blocks(parameter)};
    const auto codes = [](const char* name) { return RuleState{.name = name, .type = at::kByte}; };
    const auto scales = [&](const char* name) {
      return RuleState{.name = name, .form = RuleState::Form::Whole, .shape = blocks, .type = at::kFloat};
    };
    return {codes("exp_avg"), codes("exp_avg_sq"), scales("exp_avg_absmax"), scales("exp_avg_sq_absmax")};
  }
  bool is_elementwise() const override { return false; }
  int64_t num_rounds() const override { return 1; }
  bool changes_tiles(int64_t round) const override { return round == 1; }
  comm::ReduceOp joined_by() const override { return comm::ReduceOp::Max; }
  int64_t measured_size(int64_t, const RuleParameter& parameter) const override {
    return 2 * num_blocks(parameter);
  }
  at::Tensor measure(int64_t, RuleUpdate& u) const override {
    const at::Tensor largest =
        at::zeros({2, num_blocks(*u.parameter)}, at::TensorOptions(u.value.device()).dtype(at::kDouble));
    detail::measure_8bit(update_of(u, u.states[2], u.states[3]), largest);
    return largest;
  }
  // The old scales stay among the totals, since apply() still needs them for the old codes.
  void absorb(int64_t, RuleUpdate& u) const override {
    const at::Tensor largest = u.totals.back().view({2, -1});
    for (int64_t s = 0; s < 2; ++s) {
      const at::Tensor& scales = u.states[static_cast<size_t>(2 + s)];
      u.totals.push_back(scales.clone());
      scales.copy_(largest.select(0, s));
    }
  }
  void apply(RuleUpdate& u) const override {
    const size_t last = u.totals.size() - 1;
    detail::apply_8bit(update_of(u, u.totals[last - 1], u.totals[last]), u.states[2], u.states[3]);
  }

 private:
  static int64_t num_blocks(const RuleParameter& parameter) {
    return (parameter.numel() + detail::kStateBlock - 1) / detail::kStateBlock;
  }
  detail::Update8bit update_of(const RuleUpdate& u, const at::Tensor& mean_scales,
                               const at::Tensor& square_scales) const {
    return {u.value,  u.gradient, u.states[0], u.states[1],    mean_scales, square_scales,      o_.beta1,
            o_.beta2, o_.epsilon, u.lr,        u.weight_decay, u.step,      u.parameter->shape, *u.box};
  }

  const OptimizerOptions o_;
};

}  // namespace

RulePtr adamw_8bit_rule(const OptimizerOptions& options) { return std::make_shared<AdamW8bitRule>(options); }

bool has_32bit_states(const RuleParameter& parameter) {
  return parameter.numel() < 4096 || parameter.role == nn::ParameterRole::Embedding ||
         parameter.role == nn::ParameterRole::LayerTable || parameter.role == nn::ParameterRole::Positions;
}

}  // namespace tessera::optim
