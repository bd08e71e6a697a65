#include "tessera/ops/cuda/own_leaves.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>

#include "tessera/core/error.h"
#include "tessera/core/ignore_label.h"
#include "tessera/core/round_up.h"
#include "tessera/device/device_event.h"
#include "tessera/ops/cuda/aten_leaves.h"
#include "tessera/ops/support.h"

namespace tessera::ops::cuda {
namespace {

// [Note: calls of own kernels] Kernels of the table know raw pointers and a stream, and nothing of LibTorch
// (kernels.h, [Note: rules of the table]). So a leaf makes all memory, results, dense copies of operands and
// workspaces, and a kernel only enqueues work on it.
//
// Order: a leaf enqueues on the stream on which LibTorch works now (Place), so that kernels run behind those
// that made their operands. A workspace or a copy may be freed while its kernel still waits: LibTorch's
// allocator gives the memory out again to work on the same stream, which comes later. Nothing here waits for
// the device. An error that check() finds is one of the launch; a kernel that fails on the device shows in a
// later call.
//
// Types: kernels take float32 and bfloat16 (is_taken()), unless an entry says more. For operands of other
// types a leaf calls that of aten_leaves(), which this table otherwise replaces.
//
// Counts of writes: kernels write past LibTorch, which does not count that. For memory that the leaf has made
// it does not matter; an op that lets a leaf write an operand, such as apply_rope_, counts the write itself
// (note_write()) or marks it dirty.

const CudaKernels* kernels_in_use = nullptr;

// Returns the kernels in use. use_kernels() has set them before the first leaf runs, so no lock is needed.
const CudaKernels& kernels() { return *kernels_in_use; }

// The place that a call runs on: makes its tensors' device the current one, and knows the stream on which
// LibTorch works there now.
class Place {
 public:
  explicit Place(const at::Tensor& x) : guard_(x.device()) {
    if (has_streams(x.device())) stream_ = current_stream(x.device()).native_handle();
  }
  void* stream() const { return stream_; }

 private:
  c10::DeviceGuard guard_;
  void* stream_ = nullptr;
};

void check(int32_t error, const char* name) {
  if (error == 0) return;
  throw Error(ErrorKind::Internal, "CUDA-KERNEL", std::string("the CUDA kernel '") + name + "' did not start")
      .got(kernels().error_text(error));
}

// Tells whether kernels take tensors of this type.
bool is_taken(const at::Tensor& x) {
  return x.scalar_type() == at::kFloat || x.scalar_type() == at::kBFloat16;
}
Type type_of(const at::Tensor& x) {
  switch (x.scalar_type()) {
    case at::kFloat: return Type::F32;
    case at::kBFloat16: return Type::BF16;
    case at::kHalf: return Type::F16;
    case at::kDouble: return Type::F64;
    default: TESSERA_ASSERT(false, "element type without kernels");
  }
}

// Return the addresses of a tensor's elements; null for an undefined tensor.
const void* from(const at::Tensor& x) { return x.defined() ? x.const_data_ptr() : nullptr; }
void* to(const at::Tensor& x) { return x.defined() ? x.mutable_data_ptr() : nullptr; }
at::Tensor dense(const at::Tensor& x) { return x.defined() ? x.contiguous() : x; }
at::Tensor like(const at::Tensor& x) { return at::empty(x.sizes(), x.options()); }
// Returns memory on x's device that may be freed as soon as the kernel is enqueued.
at::Tensor workspace(int64_t bytes, const at::Tensor& x) {
  return at::empty({bytes}, x.options().dtype(at::kByte));
}

// Asks a kernel for the e4m3 scale of a tensor that it is about to make, if products in e4m3 are near, and
// notes it for the tensor now: readers come later on the same stream. Undefined tensors and those of other
// types than bfloat16 get none.
class ScaleOf {
 public:
  explicit ScaleOf(const at::Tensor& made) {
    const bool is_looked_for = product_type() == ProductType::E4m3 && made.defined() &&
                               made.scalar_type() == at::kBFloat16 && made.numel() > 0;
    if (!is_looked_for) return;
    scale_ = at::empty({}, made.options().dtype(at::kFloat));
    scratch_ = workspace(kScaleWorkspace, made);
    result_ = {write<float>(scale_), to(scratch_)};
    keep_e4m3_scale(made, scale_);
  }
  const ScaleResult* get() const { return scale_.defined() ? &result_ : nullptr; }

 private:
  at::Tensor scale_, scratch_;
  ScaleResult result_ = {};
};

E4m3Matrix to_e4m3(const at::Tensor& x_in, const at::Tensor& scale) {
  if (!is_taken(x_in)) return aten_leaves().to_e4m3(x_in, scale);
  const Place place(x_in);
  // A transposed view is read as it lies in memory, by the kernel that transposes on its way.
  const bool is_transposed = !x_in.is_contiguous() && x_in.t().is_contiguous();
  const at::Tensor x = is_transposed ? x_in.t() : dense(x_in);
  const int64_t rows = x.size(0), width = x.size(1), stride = round_up(x_in.size(1), kE4m3Depth);
  const E4m3Matrix made{at::empty({x_in.size(0), stride}, x.options().dtype(at::kFloat8_e4m3fn)),
                        scale.defined() ? scale : at::empty({}, x.options().dtype(at::kFloat))};
  if (!scale.defined()) {
    const at::Tensor scratch = workspace(kernels().e4m3_scale_workspace(x.numel()), x);
    check(kernels().e4m3_scale(type_of(x), from(x), x.numel(), write<float>(made.scale), to(scratch),
                               place.stream()),
          "e4m3_scale");
  }
  const auto cast = is_transposed ? kernels().to_e4m3_transposed : kernels().to_e4m3;
  check(
      cast(type_of(x), from(x), read<float>(made.scale), to(made.codes), rows, width, stride, place.stream()),
      "to_e4m3");
  return made;
}

NormedRows rms_norm(const at::Tensor& x_in, const at::Tensor& delta_in, const at::Tensor& weight_in,
                    double eps) {
  if (!is_taken(x_in) || !is_taken(weight_in)) return aten_leaves().rms_norm(x_in, delta_in, weight_in, eps);
  const Place place(x_in);
  const at::Tensor x = dense(x_in), delta = dense(delta_in), weight = dense(weight_in);
  const int64_t width = x.size(-1), rows = width > 0 ? x.numel() / width : 0;
  const NormedRows made{delta.defined() ? like(x) : at::Tensor(), like(x),
                        at::empty({rows}, x.options().dtype(at::kFloat))};
  const ScaleOf scale(made.y);
  check(kernels().rms_norm(type_of(x), type_of(weight), from(x), from(delta), from(weight), eps,
                           to(made.residual), to(made.y), write<float>(made.inverse_rms), rows, width,
                           scale.get(), place.stream()),
        "rms_norm");
  return made;
}

at::Tensor rms_norm_again(const at::Tensor& residual_in, const at::Tensor& weight_in,
                          const at::Tensor& inverse_rms, double eps) {
  if (!is_taken(residual_in) || !is_taken(weight_in)) {
    return aten_leaves().rms_norm_again(residual_in, weight_in, inverse_rms, eps);
  }
  const Place place(residual_in);
  const at::Tensor residual = dense(residual_in), weight = dense(weight_in), y = like(residual);
  check(kernels().rms_norm_scale(type_of(y), type_of(weight), from(residual), from(weight),
                                 read<float>(inverse_rms), to(y), inverse_rms.numel(), y.size(-1),
                                 place.stream()),
        "rms_norm_scale");
  return y;
}

std::pair<at::Tensor, at::Tensor> rms_norm_backward(const at::Tensor& grad_in,
                                                    const at::Tensor& grad_residual_in,
                                                    const at::Tensor& x_in, const at::Tensor& weight_in,
                                                    const at::Tensor& inverse_rms, bool want_x,
                                                    bool want_weight) {
  if (!is_taken(x_in) || !is_taken(weight_in)) {
    return aten_leaves().rms_norm_backward(grad_in, grad_residual_in, x_in, weight_in, inverse_rms, want_x,
                                           want_weight);
  }
  const Place place(x_in);
  const at::Tensor grad = dense(grad_in), grad_residual = dense(grad_residual_in), x = dense(x_in),
                   weight = dense(weight_in);
  const int64_t rows = inverse_rms.numel(), width = x.size(-1);
  const at::Tensor grad_x = want_x ? like(x) : at::Tensor(),
                   grad_weight = want_weight ? like(weight) : at::Tensor();
  const at::Tensor scratch =
      workspace(want_weight ? kernels().rms_norm_backward_workspace(rows, width) : 0, x);
  const ScaleOf scale(grad_x);
  check(kernels().rms_norm_backward(type_of(x), type_of(weight), from(grad), from(x), from(weight),
                                    read<float>(inverse_rms), from(grad_residual), to(grad_x),
                                    to(grad_weight), rows, width, to(scratch), scale.get(), place.stream()),
        "rms_norm_backward");
  return {grad_x, grad_weight};
}

void rope(const at::Tensor& x, const at::Tensor& cos_in, const at::Tensor& sin_in, const RopeForm& form,
          int direction, const at::Tensor& y) {
  if (!is_taken(x) || form.is_interleaved || form.head_dim != 2 * cos_in.size(1)) {
    return aten_leaves().rope(x, cos_in, sin_in, form, direction, y);
  }
  const Place place(x);
  const at::Tensor cos = in_compute_type(cos_in, x.scalar_type()),
                   sin = in_compute_type(sin_in, x.scalar_type());
  const int64_t tokens = cos.size(0), half = cos.size(1);
  const int64_t heads = tokens > 0 ? x.numel() / (tokens * 2 * half) : 0;
  // In the forward no product reads the result, which goes to attention; in the backward the products of the
  // projections do.
  const ScaleOf scale(direction < 0 ? y : at::Tensor());
  check(kernels().rope(type_of(x), from(x), read<float>(cos), read<float>(sin), direction, to(y), tokens,
                       heads, half, scale.get(), place.stream()),
        "rope");
}

Activate activation(Nonlinearity f) { return static_cast<Activate>(f); }
bool has_kernel(Nonlinearity f) { return f != Nonlinearity::Relu && f != Nonlinearity::Relu2; }

at::Tensor activate_mlp(Nonlinearity f, const MlpInputs& inputs) {
  if (!is_taken(inputs.gate) || !has_kernel(f)) return aten_leaves().activate_mlp(f, inputs);
  const Place place(inputs.gate);
  const at::Tensor gate = dense(inputs.gate), up = dense(inputs.up), y = like(gate);
  const ScaleOf scale(y);
  check(kernels().activate(type_of(y), activation(f), from(gate), from(up), to(y), y.numel(), scale.get(),
                           place.stream()),
        "activate");
  return y;
}

MlpInputs activate_mlp_backward(Nonlinearity f, const at::Tensor& grad_in, const MlpInputs& inputs,
                                bool want_gate, bool want_up) {
  if (!is_taken(inputs.gate) || !has_kernel(f)) {
    return aten_leaves().activate_mlp_backward(f, grad_in, inputs, want_gate, want_up);
  }
  const Place place(inputs.gate);
  const at::Tensor grad = dense(grad_in), gate = dense(inputs.gate), up = dense(inputs.up);
  const MlpInputs made{want_gate ? like(gate) : at::Tensor(), want_up ? like(up) : at::Tensor()};
  const ScaleOf gate_scale(made.gate), up_scale(made.up);
  check(kernels().activate_backward(type_of(gate), activation(f), from(grad), from(gate), from(up),
                                    to(made.gate), to(made.up), gate.numel(), gate_scale.get(),
                                    up_scale.get(), place.stream()),
        "activate_backward");
  return made;
}

void cross_entropy(const at::Tensor& logits, const at::Tensor& labels, const at::Tensor& losses,
                   bool in_place, const LossFormula& formula) {
  if (!is_taken(logits)) return aten_leaves().cross_entropy(logits, labels, losses, in_place, formula);
  const Place place(logits);
  const LossOptions options{formula.terms.label_smoothing, formula.terms.z_loss_coef, formula.vocabulary,
                            formula.first_token(), kIgnoreLabel};
  const Type type = type_of(logits);
  const int64_t rows = logits.size(0), width = logits.size(1);
  if (formula.part == nullptr) {
    check(kernels().cross_entropy(type, to(logits), read<int64_t>(labels), write<double>(losses), rows, width,
                                  &options, in_place ? 1 : 0, place.stream()),
          "cross_entropy");
    return;
  }
  // Over parts of a vocabulary the host sits between two kernels: it combines the sums of all holders, which
  // is collective and must be called once by each of them. combine_parts() enqueues behind the first kernel,
  // and the second behind it.
  const at::Tensor sums = at::empty({3, rows}, logits.options().dtype(at::kFloat));
  check(kernels().cross_entropy_sums(type, from(logits), read<int64_t>(labels), write<float>(sums), rows,
                                     width, &options, place.stream()),
        "cross_entropy_sums");
  combine_parts(sums, *formula.part);
  check(kernels().cross_entropy_finish(type, to(logits), read<int64_t>(labels), read<float>(sums),
                                       write<double>(losses), rows, width, &options, in_place ? 1 : 0,
                                       place.stream()),
        "cross_entropy_finish");
}

at::Tensor sum_losses(const at::Tensor& losses) {
  const Place place(losses);
  const at::Tensor sum = at::empty({}, losses.options());
  check(kernels().sum(read<double>(losses), losses.numel(), write<double>(sum), place.stream()), "sum");
  return sum;
}

RandomKey key_of(const CounterRng& rng, uint64_t step) { return {{rng.key()[0], rng.key()[1]}, step}; }

AdamWRounding rounding_of(const ops::AdamWRounding& r) {
  return {key_of(r.value, r.step),
          key_of(r.exp_avg, r.step),
          key_of(r.exp_avg_sq, r.step),
          static_cast<uint64_t>(r.numbers.first),
          static_cast<uint64_t>(r.numbers.width),
          static_cast<uint64_t>(r.numbers.row_stride)};
}

void adamw(const std::vector<ops::AdamWTensors>& all, const at::Tensor& device_scale) {
  // The clip factor stays on the device: kernels read it there.
  const at::Tensor scale = device_scale.defined() ? device_scale.to(at::kFloat) : at::Tensor();
  std::vector<ops::AdamWTensors> others;
  for (const ops::AdamWTensors& tensors : all) {
    if (!is_taken(tensors.value)) {
      others.push_back(tensors);
      continue;
    }
    const Place place(tensors.value);
    const at::Tensor gradient =
        is_taken(tensors.gradient) ? dense(tensors.gradient) : tensors.readable_gradient();
    const kernels::AdamWFactors f = tensors.update.factors();
    const AdamWFactors factors{f.gradient_scale,   f.beta1, f.beta2, f.epsilon, f.decay, f.step_size,
                               f.square_correction};
    const AdamWTensors operands{to(tensors.value),        from(gradient),         to(tensors.exp_avg),
                                to(tensors.exp_avg_sq),   type_of(tensors.value), type_of(gradient),
                                type_of(tensors.exp_avg), tensors.value.numel()};
    const AdamWRounding rounding = tensors.rounding ? rounding_of(*tensors.rounding) : AdamWRounding{};
    check(cuda::kernels().adamw(&operands, &factors, static_cast<const float*>(from(scale)),
                                tensors.rounding ? &rounding : nullptr, place.stream()),
          "adamw");
  }
  if (!others.empty()) aten_leaves().adamw(others, device_scale);
}

std::vector<at::Tensor> sums_of_squares(const std::vector<at::Tensor>& all) {
  if (!std::all_of(all.begin(), all.end(),
                   [](const at::Tensor& x) { return x.scalar_type() != at::kHalf; })) {
    return aten_leaves().sums_of_squares(all);
  }
  const Place place(all.front());
  // One workspace serves all tensors, one after another on the stream.
  int64_t bytes = 0;
  for (const at::Tensor& x : all) bytes = std::max(bytes, kernels().sum_of_squares_workspace(x.numel()));
  const at::Tensor scratch = workspace(bytes, all.front());
  const auto sums = at::empty({std::ssize(all)}, all.front().options().dtype(at::kDouble)).unbind();
  for (size_t i = 0; i < all.size(); ++i) {
    const at::Tensor x = dense(all[i]);
    check(kernels().sum_of_squares(type_of(x), from(x), x.numel(), write<double>(sums[i]), to(scratch),
                                   place.stream()),
          "sum_of_squares");
  }
  return sums;
}

void cast_into(const at::Tensor& target, const at::Tensor& source) {
  const auto fits = [](const at::Tensor& x) {
    return x.is_contiguous() && (is_taken(x) || x.scalar_type() == at::kHalf);
  };
  if (!fits(target) || !fits(source) || target.device() != source.device() ||
      target.scalar_type() == source.scalar_type()) {
    return aten_leaves().cast_into(target, source);
  }
  const Place place(source);
  check(kernels().cast(type_of(source), from(source), type_of(target), to(target), source.numel(),
                       place.stream()),
        "cast");
}

void draw(const at::Tensor& out, const Draw& what, const ElementNumbers& numbers) {
  if (out.scalar_type() == at::kHalf) return aten_leaves().draw(out, what, numbers);
  const Place place(out);
  const RandomKey key = key_of(what.rng, what.step);
  const at::Tensor of_rows =
      numbers.of_rows == nullptr ? at::Tensor() : copied_to<int64_t>(out.device(), *numbers.of_rows);
  const RandomElements elements{
      out.numel() / numbers.width, numbers.width, static_cast<uint64_t>(numbers.first),
      static_cast<uint64_t>(numbers.row_stride), of_rows.defined() ? read<int64_t>(of_rows) : nullptr};
  if (what.kind == Draw::Kind::Dropout) {
    check(kernels().dropout_mask(type_of(out), what.p, &key, &elements, to(out), place.stream()),
          "dropout_mask");
  } else {
    check(kernels().uniform_noise(type_of(out), &key, &elements, to(out), place.stream()), "uniform_noise");
  }
}

void expand_ggml(const at::Tensor& target, const at::Tensor& blocks, int64_t num_blocks, uint32_t ggml_type) {
  const Place place(blocks);
  check(kernels().dequantize_ggml(ggml_type, from(blocks), num_blocks, type_of(target), to(target),
                                  place.stream()),
        "dequantize_ggml");
}

}  // namespace

void use_kernels(const CudaKernels& kernels) { kernels_in_use = &kernels; }

Leaves own_leaves() {
  Leaves made = aten_leaves();
  made.to_e4m3 = to_e4m3;
  made.rms_norm = rms_norm;
  made.rms_norm_again = rms_norm_again;
  made.rms_norm_backward = rms_norm_backward;
  made.rope = rope;
  made.activate_mlp = activate_mlp;
  made.activate_mlp_backward = activate_mlp_backward;
  made.cross_entropy = cross_entropy;
  made.sum_losses = sum_losses;
  made.adamw = adamw;
  made.sums_of_squares = sums_of_squares;
  made.cast_into = cast_into;
  made.draw = draw;
  made.expand_ggml = expand_ggml;
  return made;
}

}  // namespace tessera::ops::cuda
