#include "tessera/ops/weight.h"

#include <algorithm>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "tessera/core/error.h"
#include "tessera/device/device.h"
#include "tessera/device/device_copy.h"
#include "tessera/device/host_memory.h"
#include "tessera/ops/coded_rows.h"
#include "tessera/ops/leaf.h"
#include "tessera/ops/support.h"

namespace tessera::ops {
namespace {

using io::BlockKind;

// Values that are expanded at a time: a megabyte of float32, which stays in the cache until it is multiplied.
constexpr int64_t kValuesAtOnce = int64_t{1} << 18;

at::Tensor expand_on_host(const at::Tensor& blocks, const io::BlockForm& form, at::ScalarType type) {
  const int64_t count = blocks.size(0), columns = blocks.size(1) / form.bytes * form.elements;
  const at::Tensor values = at::empty({count, columns}, on_host(at::kFloat));
  const kernels::CodedMatrix matrix = coded_matrix(form, blocks);
  float* const to = write<float>(values);
  at::parallel_for(0, count, rows_per_task(columns), [&](int64_t begin, int64_t end) {
    read_coded_rows(matrix, begin, end - begin, columns, to + begin * columns);
  });
  return values.to(type);
}

// Returns the codes of four bits of bytes [n, m] as [n, 2 m].
at::Tensor nibbles_of(const at::Tensor& bytes) {
  return at::stack({bytes.bitwise_and(15), bytes.bitwise_right_shift(4)}, -1).flatten(-2);
}

// Expands blocks by LibTorch's operations, on any device: [rows, blocks, bytes of a block] to the same
// blocks' elements.
at::Tensor expand_by_formula(const at::Tensor& blocks, const io::BlockForm& form) {
  const auto table = [&](const float* values, int64_t count) {
    return copy_to(at::from_blob(const_cast<float*>(values), {count}, on_host(at::kFloat)), blocks.device());
  };
  const auto number = [&](int64_t at) { return blocks.narrow(-1, at, 4).contiguous().view(at::kFloat); };
  const int64_t head = io::has_zero(form.kind) ? 8 : 4;
  const at::Tensor codes = blocks.narrow(-1, head, form.bytes - head), scale = number(0);
  const auto nibbles = [&] { return nibbles_of(codes).narrow(-1, 0, form.elements); };
  switch (form.kind) {
    case BlockKind::Nf4:
    case BlockKind::Fp4:
    case BlockKind::E2m1:
      return table(io::code_table(form.kind), 16).index({nibbles().to(at::kLong)}) * scale;
    case BlockKind::Int8: return codes.contiguous().view(at::kChar).to(at::kFloat) * scale;
    case BlockKind::LlmInt8:
      return codes.contiguous().view(at::kChar).to(at::kFloat) * scale * (1.0f / 127.0f);
    case BlockKind::E4m3: return table(io::e4m3_table(), 256).index({codes.to(at::kLong)}) * scale;
    case BlockKind::Affine4: return (nibbles().to(at::kFloat) - number(4)) * scale;
    case BlockKind::Affine8: return (codes.to(at::kFloat) - number(4)) * scale;
    case BlockKind::Ggml: break;
  }
  throw_internal(__FILE__, __LINE__, "a form with a formula", io::name_of(form));
}

at::Tensor expand_on_device(const at::Tensor& blocks, const io::BlockForm& form, at::ScalarType type) {
  const int64_t count = blocks.size(0), num_blocks = blocks.size(1) / form.bytes;
  if (form.kind != BlockKind::Ggml) {
    return expand_by_formula(blocks.view({count, num_blocks, form.bytes}), form)
        .to(type)
        .view({count, num_blocks * form.elements});
  }
  const auto leaf = leaves(blocks).expand_ggml;
  if (leaf == nullptr || type == at::kDouble || !io::expands_on_devices(form.ggml)) {
    return copy_to(expand_on_host(copy_to(blocks, kHost), form, type), blocks.device());
  }
  const at::Tensor values = at::empty({count, num_blocks * form.elements}, blocks.options().dtype(type));
  leaf(values, blocks, count * num_blocks, static_cast<uint32_t>(form.ggml));
  return values;
}

}  // namespace

Weight Weight::t() const {
  if (!is_coded()) return Weight(stored_.t());
  Weight turned = *this;
  turned.is_transposed_ = !is_transposed_;
  return turned;
}

int64_t Weight::size(int64_t dim) const {
  if (!is_coded()) return stored_.size(dim);
  const bool is_out = (dim == 0) != is_transposed_;
  return is_out ? stored_.size(0) : stored_.size(1) / form_->bytes * form_->elements;
}

const at::Tensor& Weight::values() const {
  TESSERA_ASSERT(!is_coded(), "the values of a weight that is not coded");
  return stored_;
}

at::Tensor Weight::rows(int64_t first, int64_t count, at::ScalarType type) const {
  if (!is_coded()) return stored_.narrow(0, first, count).to(type);
  const at::Tensor blocks = stored_.narrow(0, first, count);
  return is_on_host(blocks) ? expand_on_host(blocks, *form_, type) : expand_on_device(blocks, *form_, type);
}

int64_t Weight::rows_at_once() const {
  const int64_t columns = std::max<int64_t>(is_transposed_ ? size(0) : size(1), 1);
  return std::clamp<int64_t>(kValuesAtOnce / columns, 1, std::max<int64_t>(stored_.size(0), 1));
}

void keep_form(torch::autograd::AutogradContext& ctx, const Weight& weight) {
  if (!weight.is_coded()) return;
  const io::BlockForm& form = *weight.form();
  ctx.saved_data["form"] = std::vector<int64_t>{static_cast<int64_t>(form.kind),
                                                static_cast<int64_t>(form.ggml), form.elements, form.bytes};
}

WeightForm kept_form(torch::autograd::AutogradContext& ctx) {
  const auto found = ctx.saved_data.find("form");
  if (found == ctx.saved_data.end()) return std::nullopt;
  const std::vector<int64_t> numbers = found->second.toIntVector();
  return io::BlockForm{static_cast<BlockKind>(numbers[0]), static_cast<io::GgmlType>(numbers[1]), numbers[2],
                       numbers[3]};
}

}  // namespace tessera::ops
