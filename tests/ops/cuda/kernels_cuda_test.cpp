// Runs the tests beside this file with the compiled kernels on a device, and measures how near to the rate
// of memory the kernels run.
#include <chrono>
#include <cstdio>
#include <functional>

#include <ATen/ATen.h>

#include "tessera/ops/cuda/own_kernels.h"

#include "tests/ops/cuda/machine.h"
#include "tests/testing/cuda_device.h"

namespace tessera::ops::cuda {
namespace {

// A GPU. Kernels run on the default stream, as LibTorch's copies do, so the copies come after them.
class Device : public Machine {
 public:
  explicit Device(const CudaKernels& kernels) : kernels_(kernels) {}
  const CudaKernels& kernels() const override { return kernels_; }
  std::shared_ptr<char> allocate(size_t bytes) const override {
    const at::Tensor memory = at::full({static_cast<int64_t>(bytes)}, 0xff, options());
    return {static_cast<char*>(memory.mutable_data_ptr()), [memory](char*) {}};
  }
  void write(void* to, const void* from, size_t bytes) const override {
    if (bytes > 0) on_device(to, bytes).copy_(on_host(const_cast<void*>(from), bytes));
  }
  void read(void* to, const void* from, size_t bytes) const override {
    if (bytes > 0) on_host(to, bytes).copy_(on_device(const_cast<void*>(from), bytes));
  }

 private:
  static at::TensorOptions options() { return at::TensorOptions(testing::cuda_device()).dtype(at::kByte); }
  static at::Tensor on_device(void* memory, size_t bytes) {
    return at::from_blob(memory, {static_cast<int64_t>(bytes)}, options());
  }
  static at::Tensor on_host(void* memory, size_t bytes) {
    return at::from_blob(memory, {static_cast<int64_t>(bytes)}, tessera::on_host(at::kByte));
  }

  const CudaKernels& kernels_;
};

// Returns the bytes per second of a call, which is repeated until its time can be measured.
double rate_of(int64_t bytes, const std::function<void()>& call) {
  using Clock = std::chrono::steady_clock;
  const Array<char> probe(1);
  const auto seconds = [&](int repeats) {
    probe.values();
    const auto begin = Clock::now();
    for (int i = 0; i < repeats; ++i) call();
    probe.values();
    return std::chrono::duration<double>(Clock::now() - begin).count();
  };
  seconds(3);
  const double one = seconds(3) / 3;
  const int repeats = std::max(5, static_cast<int>(0.2 / one));
  return static_cast<double>(bytes) * repeats / seconds(repeats);
}

// Prints the rates of the largest kernels that are not products; the goal is 80 % of the copy's. A figure,
// not a promise: no test fails on time.
TEST_F(KernelTest, RatesAgainstTheCopysRate) {
  const auto options = at::TensorOptions(testing::cuda_device());
  const at::Tensor from = at::zeros({int64_t{1} << 29}, options.dtype(at::kByte)), to = at::empty_like(from);
  const double copy = rate_of(2 * from.numel(), [&] { to.copy_(from); });
  std::printf("%-44s %7.0f GB/s\n", "copy", copy / 1e9);
  const auto tell = [&](const char* name, int64_t bytes, const std::function<int32_t()>& call) {
    ASSERT_EQ(call(), 0) << name;
    const double rate = rate_of(bytes, [&] { call(); });
    std::printf("%-44s %7.0f GB/s %5.1f %% of the copy\n", name, rate / 1e9, 100 * rate / copy);
    RecordProperty(name, std::to_string(rate / copy));
  };
  const auto bf16 = [&](int64_t n) { return at::zeros({n}, options.dtype(at::kBFloat16)); };
  const auto f32 = [&](int64_t n) { return at::zeros({n}, options.dtype(at::kFloat)); };
  const auto at_of = [](const at::Tensor& x) { return x.mutable_data_ptr(); };
  const CudaKernels& k = kernels();

  // These kernels also compute the scales of their results for products in e4m3.
  const at::Tensor scales = f32(2), spaces = f32(2 * kScaleWorkspace / 4);
  auto* const found = static_cast<float*>(at_of(scales));
  auto* const space_of = static_cast<char*>(at_of(spaces));
  const ScaleResult first = {found, space_of}, second = {found + 1, space_of + kScaleWorkspace};

  const int64_t rows = 16384, width = 3584, n = rows * width;
  {
    const at::Tensor x = bf16(n), delta = bf16(n), residual = bf16(n), y = bf16(n), weight = bf16(width);
    const at::Tensor grad_weight = bf16(width), inverse = f32(rows);
    const at::Tensor space = f32(k.rms_norm_backward_workspace(rows, width) / 4);
    tell("add + norm, bf16, 16384 x 3584", 8 * n, [&] {
      return k.rms_norm(Type::BF16, Type::BF16, at_of(x), at_of(delta), at_of(weight), 1e-6, at_of(residual),
                        at_of(y), static_cast<float*>(at_of(inverse)), rows, width, nullptr, nullptr);
    });
    tell("add + norm, with its scale", 8 * n, [&] {
      return k.rms_norm(Type::BF16, Type::BF16, at_of(x), at_of(delta), at_of(weight), 1e-6, at_of(residual),
                        at_of(y), static_cast<float*>(at_of(inverse)), rows, width, &first, nullptr);
    });
    tell("add + norm backward, with the weight's", 8 * n, [&] {
      return k.rms_norm_backward(Type::BF16, Type::BF16, at_of(y), at_of(x), at_of(weight),
                                 static_cast<float*>(at_of(inverse)), at_of(delta), at_of(residual),
                                 at_of(grad_weight), rows, width, at_of(space), nullptr, nullptr);
    });
  }
  {
    const at::Tensor x = bf16(n), codes = at::zeros({n}, options.dtype(at::kByte)), scale = f32(1);
    const at::Tensor space = f32(k.e4m3_scale_workspace(n) / 4);
    auto* const factor = static_cast<float*>(at_of(scale));
    tell("e4m3 scale, bf16, 16384 x 3584", 2 * n,
         [&] { return k.e4m3_scale(Type::BF16, at_of(x), n, factor, at_of(space), nullptr); });
    tell("e4m3 cast", 3 * n,
         [&] { return k.to_e4m3(Type::BF16, at_of(x), factor, at_of(codes), rows, width, width, nullptr); });
    tell("e4m3 cast of the transpose", 3 * n, [&] {
      return k.to_e4m3_transposed(Type::BF16, at_of(x), factor, at_of(codes), rows, width, rows, nullptr);
    });
  }
  {
    const int64_t m = int64_t{8192} * 18944;
    const at::Tensor gate = bf16(m), up = bf16(m), y = bf16(m), grad_gate = bf16(m), grad_up = bf16(m);
    tell("swiglu, bf16, 8192 x 18944", 6 * m, [&] {
      return k.activate(Type::BF16, Activate::Silu, at_of(gate), at_of(up), at_of(y), m, nullptr, nullptr);
    });
    tell("swiglu backward", 10 * m, [&] {
      return k.activate_backward(Type::BF16, Activate::Silu, at_of(y), at_of(gate), at_of(up),
                                 at_of(grad_gate), at_of(grad_up), m, nullptr, nullptr, nullptr);
    });
    tell("swiglu, with its scale", 6 * m, [&] {
      return k.activate(Type::BF16, Activate::Silu, at_of(gate), at_of(up), at_of(y), m, &first, nullptr);
    });
    tell("swiglu backward, with its scales", 10 * m, [&] {
      return k.activate_backward(Type::BF16, Activate::Silu, at_of(y), at_of(gate), at_of(up),
                                 at_of(grad_gate), at_of(grad_up), m, &first, &second, nullptr);
    });
  }
  {
    const int64_t m = int64_t{1} << 28;
    const at::Tensor gradient = bf16(m), scale = f32(1);
    const AdamWFactors factors = {1.0, 0.9, 0.999, 1e-8, 1.0, 1e-5, 1.0};
    {
      const at::Tensor value = f32(m), mean = f32(m), square = f32(m);
      const AdamWTensors tensors = {at_of(value), at_of(gradient), at_of(mean), at_of(square),
                                    Type::F32,    Type::BF16,      Type::F32,   m};
      tell("adamw, float32 states, bf16 gradient", 26 * m,
           [&] { return k.adamw(&tensors, &factors, static_cast<float*>(at_of(scale)), nullptr, nullptr); });
    }
    const at::Tensor value = f32(m), mean = bf16(m), square = bf16(m);
    const AdamWTensors tensors = {at_of(value), at_of(gradient), at_of(mean), at_of(square),
                                  Type::F32,    Type::BF16,      Type::BF16,  m};
    for (const uint64_t width : {static_cast<uint64_t>(m), uint64_t{4736}}) {
      const AdamWRounding rounding = {{{1, 2}, 3}, {{4, 5}, 3}, {{6, 7}, 3}, 0, width, 18944};
      const char* name = width == 4736 ? "adamw, bf16 states rounded by chance, rows of 4736"
                                       : "adamw, bf16 states rounded by chance";
      tell(name, 18 * m, [&] {
        return k.adamw(&tensors, &factors, static_cast<float*>(at_of(scale)), &rounding, nullptr);
      });
    }
  }
  {
    const int64_t tokens = 4096, vocabulary = 151936;
    const at::Tensor logits = bf16(tokens * vocabulary),
                     labels = at::zeros({tokens}, options.dtype(at::kLong));
    const at::Tensor losses = at::zeros({tokens}, options.dtype(at::kDouble));
    const LossOptions loss = {0.0, 0.0, vocabulary, 0, -100};
    tell("loss and its gradient, bf16, 4096 x 151936", 4 * tokens * vocabulary, [&] {
      return k.cross_entropy(Type::BF16, at_of(logits), static_cast<int64_t*>(at_of(labels)),
                             static_cast<double*>(at_of(losses)), tokens, vocabulary, &loss, 1, nullptr);
    });
  }
}

}  // namespace

const Machine* machine() {
  static const OwnKernels kernels = own_kernels();
  static const auto instance = kernels.table == nullptr ? nullptr : std::make_unique<Device>(*kernels.table);
  return instance.get();
}
const char* why_no_machine() {
  return tessera::cuda::is_open() ? testing::skip::kNvcc : testing::skip::kCuda;
}
// A device's grids cannot be made smaller.
void with_small_grids(const std::function<void()>& body) { body(); }

}  // namespace tessera::ops::cuda
