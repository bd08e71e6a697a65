#include "tessera/ops/cuda/lt_product.h"

#include <algorithm>
#include <string>

#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>

#include "tessera/core/error.h"
#include "tessera/core/log.h"
#include "tessera/device/device_event.h"
#include "tessera/ops/support.h"

namespace tessera::ops::cuda {
namespace {

// Bytes of workspace that NVIDIA advises for Hopper.
constexpr uint64_t kMostWorkspace = uint64_t{32} << 20;
// Alignment in bytes that cuBLASLt asks for in fp8.
constexpr int64_t kLeastAlignment = 16;

int64_t alignment(const void* place) {
  const auto address = static_cast<int64_t>(reinterpret_cast<uintptr_t>(place));
  return std::min<int64_t>(address & -address, 256);
}

bool is_aligned_dense(const at::Tensor& x) {
  return x.is_contiguous() && x.size(1) * x.element_size() % kLeastAlignment == 0 &&
         alignment(x.const_data_ptr()) >= kLeastAlignment;
}

bool is_refusal(lt::Status status) {
  return status == lt::kInvalidValue || status == lt::kArchMismatch || status == lt::kNotSupported;
}

}  // namespace

void LtProducts::check(lt::Status status, const char* function) const {
  if (status == lt::kSuccess) return;
  throw Error(ErrorKind::Internal, "CUBLASLT", std::string(function) + " failed")
      .got(library_.status_text(status));
}

// The descriptors of sum += a b^T. In column-major terms the dense [rows, n] sum is [n, rows], and the
// product is b a^T of operands [k, n] and [k, rows]: the first of them is transposed, which is the one form
// that cuBLASLt has in fp8. So a and b change places in all calls.
struct LtProducts::Descriptors {
  Descriptors(const LtProducts& by, const at::Tensor& sum, const E4m3Matrix& a, const E4m3Matrix& b)
      : library(by.library_) {
    const auto layout = [&](lt::Layout& made, lt::DataType type, const at::Tensor& x) {
      by.check(library.layout_create(&made, type, static_cast<uint64_t>(x.size(1)),
                                     static_cast<uint64_t>(x.size(0)), x.size(1)),
               "cublasLtMatrixLayoutCreate");
    };
    const auto set = [&](lt::DescAttribute attribute, const auto& value) {
      by.check(library.desc_set(product, attribute, &value, sizeof value), "cublasLtMatmulDescSetAttribute");
    };
    try {
      by.check(library.desc_create(&product, lt::kCompute32F, lt::kF32), "cublasLtMatmulDescCreate");
      layout(of_a, lt::kE4M3, a.codes);
      layout(of_b, lt::kE4M3, b.codes);
      layout(of_sum, sum.scalar_type() == at::kFloat ? lt::kF32 : lt::kBF16, sum);
      const int32_t is_transposed = lt::kTransposed, is_not = lt::kNotTransposed;
      const void *const scale_a = a.scale.const_data_ptr(), *const scale_b = b.scale.const_data_ptr();
      set(lt::kTransA, is_transposed);
      set(lt::kTransB, is_not);
      set(lt::kScaleOfA, scale_b);
      set(lt::kScaleOfB, scale_a);
      set(lt::kFastSums, int8_t{0});
    } catch (...) {
      destroy();
      throw;
    }
  }
  ~Descriptors() { destroy(); }
  Descriptors(const Descriptors&) = delete;
  Descriptors& operator=(const Descriptors&) = delete;

  void destroy() const {
    for (const lt::Layout layout : {of_a, of_b, of_sum})
      if (layout != nullptr) static_cast<void>(library.layout_destroy(layout));
    if (product != nullptr) static_cast<void>(library.desc_destroy(product));
  }

  const LtLibrary& library;
  lt::Desc product = nullptr;
  lt::Layout of_a = nullptr, of_b = nullptr, of_sum = nullptr;
};

lt::Handle LtProducts::handle(at::Device device) {
  const std::lock_guard<std::mutex> lock(mutex_);
  lt::Handle& found = handles_[device.index()];
  if (found == nullptr) check(library_.create(&found), "cublasLtCreate");
  return found;
}

std::optional<lt::Heuristic> LtProducts::algorithm(const Key& key, lt::Handle handle, const Descriptors& of) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (const auto found = algorithms_.find(key); found != algorithms_.end()) return found->second;
  lt::Preference wanted = nullptr;
  check(library_.preference_create(&wanted), "cublasLtMatmulPreferenceCreate");
  lt::Status status = lt::kSuccess;
  const auto set = [&](lt::PreferenceAttribute attribute, const auto& value) {
    if (status == lt::kSuccess) status = library_.preference_set(wanted, attribute, &value, sizeof value);
  };
  set(lt::kWorkspaceBytes, kMostWorkspace);
  set(lt::kReductionSchemes, uint32_t{lt::kInComputeType});
  set(lt::kAlignmentOfA, static_cast<uint32_t>(key[6]));
  set(lt::kAlignmentOfB, static_cast<uint32_t>(key[5]));
  set(lt::kAlignmentOfC, static_cast<uint32_t>(key[7]));
  set(lt::kAlignmentOfD, static_cast<uint32_t>(key[7]));
  lt::Heuristic best{};
  int num_found = 0;
  if (status == lt::kSuccess) {
    status = library_.find_algorithms(handle, of.product, of.of_b, of.of_a, of.of_sum, of.of_sum, wanted, 1,
                                      &best, &num_found);
  }
  static_cast<void>(library_.preference_destroy(wanted));
  if (!is_refusal(status)) check(status, "cublasLtMatmulAlgoGetHeuristic");
  const bool is_there = status == lt::kSuccess && num_found > 0 && best.status == lt::kSuccess;
  return algorithms_[key] = is_there ? std::optional(best) : std::nullopt;
}

bool LtProducts::add_scaled(const at::Tensor& sum, const E4m3Matrix& a, const E4m3Matrix& b) {
  const bool is_taken = sum.scalar_type() == at::kFloat || sum.scalar_type() == at::kBFloat16;
  if (!is_taken || sum.numel() == 0 || a.codes.size(1) == 0) return false;
  if (!is_aligned_dense(sum) || !is_aligned_dense(a.codes) || !is_aligned_dense(b.codes)) return false;
  const c10::DeviceGuard guard(sum.device());
  const lt::Handle on_device = handle(sum.device());
  const Descriptors of(*this, sum, a, b);
  const void *const codes_a = a.codes.const_data_ptr(), *const codes_b = b.codes.const_data_ptr();
  void* const place = sum.mutable_data_ptr();
  const Key key = {sum.device().index(),
                   sum.size(0),
                   sum.size(1),
                   a.codes.size(1),
                   sum.scalar_type() == at::kFloat,
                   alignment(codes_a),
                   alignment(codes_b),
                   alignment(place)};
  const auto found = algorithm(key, on_device, of);
  if (!found) return false;
  const at::Tensor workspace =
      at::empty({static_cast<int64_t>(found->workspace_bytes)}, sum.options().dtype(at::kByte));
  void* const stream = has_streams(sum.device()) ? current_stream(sum.device()).native_handle() : nullptr;
  const float one = 1.0f;
  const lt::Status status = library_.matmul(on_device, of.product, &one, codes_b, of.of_b, codes_a, of.of_a,
                                            &one, place, of.of_sum, place, of.of_sum, &found->algorithm,
                                            workspace.mutable_data_ptr(), found->workspace_bytes, stream);
  if (!is_refusal(status)) {
    check(status, "cublasLtMatmul");
    return true;
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  algorithms_[key] = std::nullopt;
  return false;
}

LtProducts* lt_products() {
  static LtProducts* const kProducts = []() -> LtProducts* {
    std::string why_not;
    if (const auto library = LtLibrary::open(why_not)) return new LtProducts(*library);
    log::warn("cuBLASLt cannot be opened, so adding fp8 products to a sum takes a separate pass: " + why_not);
    return nullptr;
  }();
  return kProducts;
}

}  // namespace tessera::ops::cuda
