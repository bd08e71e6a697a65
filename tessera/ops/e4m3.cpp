#include "tessera/ops/e4m3.h"

#include <utility>

#include <c10/core/TensorImpl.h>

#include "tessera/device/device.h"
#include "tessera/ops/leaf.h"

namespace tessera::ops {

ProductType product_type() {
  const ProductType* const type = ProductScope::current();
  return type == nullptr ? ProductType::OfOperands : *type;
}

namespace {

using Operands = CarriedScope<std::vector<E4m3Operand*>>;

// The scale noted for a tensor. It is attached to the tensor itself and lives as long. LibTorch hands it on
// to some aliases, which count their writes apart, so it holds for the one tensor `of` alone.
struct KnownScale : c10::BackendMeta {
  KnownScale(const at::Tensor& x, at::Tensor scale)
      : of(x.unsafeGetTensorImpl()),
        memory(x.const_data_ptr()),
        numel(x.numel()),
        version(x._version()),
        scale(std::move(scale)) {}
  bool holds_for(const at::Tensor& x) const {
    return of == x.unsafeGetTensorImpl() && memory == x.const_data_ptr() && numel == x.numel() &&
           version == x._version();
  }

  const c10::TensorImpl* const of;
  const void* const memory;
  const int64_t numel, version;
  const at::Tensor scale;
};

// Tells whether LibTorch counts the writes to x; it does not for tensors of c10::InferenceMode.
bool counts_writes(const at::Tensor& x) { return x.unsafeGetTensorImpl()->version_counter().enabled(); }

at::Tensor scale_said_of(const at::Tensor& x) {
  const auto* said = dynamic_cast<const KnownScale*>(x.unsafeGetTensorImpl()->get_backend_meta());
  return said != nullptr && said->holds_for(x) ? said->scale : at::Tensor();
}

// Tells whether x is a view of all elements of `base` in their order.
bool is_whole_view(const at::Tensor& x, const at::Tensor& base) {
  return x.const_data_ptr() == base.const_data_ptr() && x.numel() == base.numel() && x.is_contiguous() &&
         base.is_contiguous() && x.scalar_type() == base.scalar_type();
}

bool is_same_memory(const at::Tensor& x, const at::Tensor& y) {
  return x.const_data_ptr() == y.const_data_ptr() && x.dim() == 2 && y.dim() == 2 &&
         x.scalar_type() == y.scalar_type();
}

// Returns the cast of x: the one that an operand in force holds, or a new one.
E4m3Matrix cast(const Leaves& table, const at::Tensor& x) {
  if (E4m3Operand* const operand = E4m3OperandsScope::holding(x)) return *operand->cast_of(x);
  return table.to_e4m3(x, known_e4m3_scale(x));
}

}  // namespace

void keep_e4m3_scale(const at::Tensor& x, const at::Tensor& scale) {
  if (!x.defined() || !scale.defined() || !counts_writes(x)) return;
  if (x.is_leaf() && x.requires_grad()) return;
  x.unsafeGetTensorImpl()->set_backend_meta(c10::make_intrusive<KnownScale>(x, scale));
}

at::Tensor known_e4m3_scale(const at::Tensor& x) {
  if (!x.defined() || !counts_writes(x)) return {};
  const at::Tensor said = scale_said_of(x);
  if (said.defined() || !x.is_view()) return said;
  const at::Tensor base(x._base());
  return is_whole_view(x, base) ? scale_said_of(base) : at::Tensor();
}

void note_write(const at::Tensor& x) {
  if (counts_writes(x)) x.unsafeGetTensorImpl()->bump_version();
}

bool E4m3Operand::is_straight(const at::Tensor& x) const {
  return is_same_memory(x, matrix_) && x.sizes() == matrix_.sizes() && x.strides() == matrix_.strides();
}

bool E4m3Operand::is_transposed(const at::Tensor& x) const {
  return is_same_memory(x, matrix_) && x.size(0) == matrix_.size(1) && x.size(1) == matrix_.size(0) &&
         x.stride(0) == matrix_.stride(1) && x.stride(1) == matrix_.stride(0);
}

const E4m3Matrix* E4m3Operand::cast_of(const at::Tensor& x) {
  if (!holds(x)) return nullptr;
  E4m3Matrix& made = is_straight(x) ? straight_ : transposed_;
  if (!made.codes.defined()) {
    if (!scale_.defined()) scale_ = known_e4m3_scale(matrix_);
    made = leaves(x).to_e4m3(x, scale_);
    scale_ = made.scale;
  }
  return &made;
}

E4m3OperandsScope::E4m3OperandsScope(ProductType type, std::initializer_list<E4m3Operand*> operands) {
  if (type != ProductType::E4m3) return;
  const auto* const around = Operands::current();
  std::vector<E4m3Operand*> all = around == nullptr ? std::vector<E4m3Operand*>() : *around;
  all.insert(all.end(), operands.begin(), operands.end());
  scope_.emplace(std::move(all));
}

E4m3Operand* E4m3OperandsScope::holding(const at::Tensor& x) {
  const auto* const operands = Operands::current();
  if (operands == nullptr) return nullptr;
  for (E4m3Operand* operand : *operands) {
    if (operand->holds(x)) return operand;
  }
  return nullptr;
}

bool multiply_in_e4m3(const at::Tensor& sum, const at::Tensor& a, const at::Tensor& b, bool adds) {
  if (product_type() != ProductType::E4m3 || a.scalar_type() != at::kBFloat16) return false;
  if (sum.numel() == 0 || a.size(1) == 0 || sum.size(1) % kE4m3Depth != 0) return false;
  if (!sum.is_contiguous()) return false;
  const Leaves& table = leaves(sum);
  table.multiply_e4m3(sum, cast(table, a), cast(table, b.t()), adds);
  return true;
}

bool has_e4m3_units(at::Device device) { return has_capability(device, 8, 9); }

}  // namespace tessera::ops
