#include "tessera/measure/device_rates.h"

#include <functional>

#include <ATen/ATen.h>

#include "tessera/core/strings.h"
#include "tessera/device/device.h"
#include "tessera/device/device_time.h"

namespace tessera::measure {
namespace {

// While it lives, LibTorch's float32 products on CUDA devices go through TF32.
class ThroughTf32 {
 public:
  ThroughTf32() { at::globalContext().setFloat32Precision(kBackend, kOp, at::Float32Precision::TF32); }
  ~ThroughTf32() { at::globalContext().setFloat32Precision(kBackend, kOp, before_); }
  ThroughTf32(const ThroughTf32&) = delete;
  ThroughTf32& operator=(const ThroughTf32&) = delete;

 private:
  static constexpr auto kBackend = at::Float32Backend::CUDA;
  static constexpr auto kOp = at::Float32Op::MATMUL;
  const at::Float32Precision before_ = at::globalContext().float32Precision(kBackend, kOp);
};

class Measurement {
 public:
  Measurement(at::Device device, const DeviceRateOptions& options) : device_(device), options_(options) {}

  // Measures how much of `amount` a function does in a second, and adds that rate. `work` makes the function,
  // together with its operands.
  void add(const std::string& name, double amount, const std::string& unit,
           const std::function<std::function<void()>()>& work) {
    DeviceRate rate{name, 0.0, unit, ""};
    try {
      rate.value = amount / best_seconds(device_, options_.rounds, work());
    } catch (const c10::Error& error) {
      rate.problem = first_line(error.what_without_backtrace());
    }
    rates_.push_back(rate);
  }

  at::Tensor random_matrix(at::ScalarType type) const {
    return at::randn({options_.size, options_.size}, at::TensorOptions(device_).dtype(at::kFloat)).to(type);
  }

  void add_products() {
    const double tera_operations = 2e-12 * static_cast<double>(options_.size) *
                                   static_cast<double>(options_.size) * static_cast<double>(options_.size);
    const auto plain = [this](at::ScalarType type) {
      return [this, type] {
        const at::Tensor a = random_matrix(type), b = random_matrix(type);
        return [a, b, c = at::empty_like(a)]() mutable { at::mm_out(c, a, b.t()); };
      };
    };
    add("bf16 products", tera_operations, "TFLOP/s", plain(at::kBFloat16));
    add("fp8 products", tera_operations, "TFLOP/s", [this] {
      const at::Tensor a = random_matrix(at::kFloat8_e4m3fn), b = random_matrix(at::kFloat8_e4m3fn);
      const at::Tensor one = at::ones({}, at::TensorOptions(device_).dtype(at::kFloat));
      return
          [a, b, one] { at::_scaled_mm(a, b.t(), one, one, {}, {}, at::kBFloat16, /*use_fast_accum=*/true); };
    });
    add("float32 products", tera_operations, "TFLOP/s", plain(at::kFloat));
    if (!device_.is_cuda()) return;
    const ThroughTf32 scope;
    add("tf32 products", tera_operations, "TFLOP/s", plain(at::kFloat));
  }

  void add_copies() {
    const auto bytes_on = [this](at::Device device) {
      return at::ones({options_.copy_bytes}, at::TensorOptions(device).dtype(at::kByte));
    };
    const double gigabytes = 1e-9 * static_cast<double>(options_.copy_bytes);
    add("copy on the device", 2.0 * gigabytes, "GB/s", [&, this] {
      const at::Tensor from = bytes_on(device_), to = at::empty_like(from);
      return [from, to] { to.copy_(from); };
    });
    if (!device_.is_cuda()) return;
    add("copy from the host", gigabytes, "GB/s", [&, this] {
      const at::Tensor from = bytes_on(kHost).pin_memory(), to = bytes_on(device_);
      return [from, to] { to.copy_(from, /*non_blocking=*/true); };
    });
  }

  std::vector<DeviceRate> rates() const { return rates_; }

 private:
  const at::Device device_;
  const DeviceRateOptions options_;
  std::vector<DeviceRate> rates_;
};

}  // namespace

std::vector<DeviceRate> measure_device_rates(c10::Device device, const DeviceRateOptions& options) {
  const at::NoGradGuard no_grad;
  Measurement measurement(device, options);
  measurement.add_products();
  measurement.add_copies();
  return measurement.rates();
}

}  // namespace tessera::measure
