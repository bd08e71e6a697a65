#include "tessera/device/meta_memory.h"

#include <cstdint>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/ExpandUtils.h>
#include <c10/core/Allocator.h>
#include <torch/library.h>

#include "tessera/core/memory_ledger.h"
#include "tessera/device/memory_scope.h"

namespace tessera {
namespace {

// A tensor of the meta device has no memory, so a byte of the heap stands for it in the ledger.
void forget(void* token) {
  if (token == nullptr) return;
  memory_ledger::remove(token);
  delete static_cast<char*>(token);
}

class MetaMemory final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    const c10::Device device(c10::DeviceType::Meta);
    if (bytes == 0 || !memory_ledger::is_on()) return {nullptr, nullptr, &forget, device};
    auto* const token = new char;
    memory_ledger::add(token, static_cast<int64_t>(bytes), current_memory_category());
    return {nullptr, token, &forget, device};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &forget; }
  void copy_data(void*, const void*, size_t) const override {}
};

// LibTorch lacks the kernels below for the meta device.
at::Tensor index_select(const at::Tensor& x, int64_t dim, const at::Tensor& index) {
  std::vector<int64_t> sizes = x.sizes().vec();
  sizes[static_cast<size_t>(dim < 0 ? dim + x.dim() : dim)] = index.numel();
  return at::empty(sizes, x.options());
}

at::Tensor where(const at::Tensor& condition, const at::Tensor& x, const at::Tensor& y) {
  const auto sizes = at::infer_size(at::infer_size(condition.sizes(), x.sizes()), y.sizes());
  return at::empty(sizes, x.options().dtype(at::result_type(x, y)).device(at::kMeta));
}

at::Tensor& unary_out(const at::Tensor& x, at::Tensor& out) {
  if (out.sizes() != x.sizes()) out.resize_(x.sizes());
  return out;
}

at::Tensor& binary_out(const at::Tensor& x, const at::Tensor& y, at::Tensor& out) {
  const auto sizes = at::infer_size(x.sizes(), y.sizes());
  if (out.sizes() != sizes) out.resize_(sizes);
  return out;
}

at::Tensor floor_divide(const at::Tensor& x, const at::Tensor& y) {
  const at::TensorOptions options = x.options().dtype(at::result_type(x, y));
  return at::empty(at::infer_size(x.sizes(), y.sizes()), options.device(at::kMeta));
}

at::Tensor isnan(const at::Tensor& x) { return at::empty(x.sizes(), x.options().dtype(at::kBool)); }

at::Tensor max(const at::Tensor& x) { return at::empty({}, x.options()); }

void add_meta_kernels() {
  static torch::Library library(torch::Library::IMPL, "aten", c10::DispatchKey::Meta, __FILE__, __LINE__);
  library.impl("index_select", &index_select);
  library.impl("where.self", &where);
  library.impl("floor_divide", &floor_divide);
  library.impl("isnan", &isnan);
  library.impl("max", &max);
  for (const char* const name : {"abs.out", "logical_not.out"}) library.impl(name, &unary_out);
  for (const char* const name : {"logical_and.out", "logical_or.out"}) library.impl(name, &binary_out);
}

}  // namespace

void count_meta_memory() {
  static const bool is_installed = [] {
    constexpr uint8_t kPriority = 1;  // above LibTorch's default
    c10::SetAllocator(c10::DeviceType::Meta, new MetaMemory, kPriority);
    add_meta_kernels();
    return true;
  }();
  static_cast<void>(is_installed);
}

}  // namespace tessera
