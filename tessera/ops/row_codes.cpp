#include "tessera/ops/row_codes.h"

#include <cfloat>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "tessera/core/round_up.h"
#include "tessera/core/trace.h"
#include "tessera/device/host_memory.h"
#include "tessera/ops/support.h"

namespace tessera::ops {
namespace {

using kernels::CodedRow;

constexpr int64_t kScaleBytes = sizeof(float);

int64_t code_bytes(const CodedRow& form) { return (form.width * form.bits + 7) / 8; }

bool has_kernel(const at::Tensor& values, const at::Tensor& codes) {
  return is_on_host(values) && values.scalar_type() != at::kHalf && values.is_contiguous() &&
         codes.is_contiguous();
}

// The codes of `rows` rows by operations of LibTorch, on any device.
void encode_plainly(const at::Tensor& codes, const at::Tensor& values, const CodedRow& form, int64_t rows) {
  const int64_t padded = form.num_blocks * form.block;
  at::Tensor x = values.reshape({rows, form.width}).to(at::kFloat);
  if (padded != form.width) x = at::constant_pad_nd(x, {0, padded - form.width});
  x = x.view({rows, form.num_blocks, form.block});
  const at::Tensor scales = x.abs().amax(-1, /*keepdim=*/true) / form.largest_code();
  const at::Tensor inverse = at::where(scales > FLT_MIN, scales.reciprocal(), at::zeros_like(scales));
  const at::Tensor scaled = x * inverse;
  at::Tensor integers = at::where(scaled.isfinite(), scaled, 0.0).round_().to(at::kChar);
  if (form.bits == 4) {
    const at::Tensor pairs = (integers + 8).to(at::kByte).view({rows, padded / 2, 2});
    integers = pairs.select(2, 0) + pairs.select(2, 1) * 16;
  }
  const at::Tensor row = codes.view({rows, form.row_bytes});
  row.narrow(1, 0, form.num_blocks * kScaleBytes).copy_(scales.view({rows, form.num_blocks}).view(at::kByte));
  row.narrow(1, form.num_blocks * kScaleBytes, code_bytes(form))
      .copy_(integers.view(at::kByte).view({rows, -1}).narrow(1, 0, code_bytes(form)));
}

at::Tensor decoded_plainly(const at::Tensor& codes, const CodedRow& form, int64_t rows) {
  const int64_t padded = form.num_blocks * form.block;
  const at::Tensor row = codes.view({rows, form.row_bytes});
  const at::Tensor scales = row.narrow(1, 0, form.num_blocks * kScaleBytes).contiguous().view(at::kFloat);
  at::Tensor integers = row.narrow(1, form.num_blocks * kScaleBytes, code_bytes(form)).contiguous();
  if (form.bits == 4) {
    integers = at::stack({at::bitwise_and(integers, 15), at::bitwise_right_shift(integers, 4)}, 2)
                   .to(at::kFloat)
                   .sub_(8.0)
                   .view({rows, -1});
  } else {
    integers = integers.view(at::kChar).to(at::kFloat);
  }
  if (integers.size(1) != padded) {
    integers = integers.size(1) > padded ? integers.narrow(1, 0, padded)
                                         : at::constant_pad_nd(integers, {0, padded - integers.size(1)});
  }
  const at::Tensor x = integers.reshape({rows, form.num_blocks, form.block}) * scales.unsqueeze(2);
  return x.view({rows, padded}).narrow(1, 0, form.width);
}

}  // namespace

RowCodes::RowCodes(int bits, int64_t row_numel) {
  TESSERA_ASSERT((bits == 8 || bits == 4) && row_numel > 0, "codes of 8 or 4 bits for rows with elements");
  const int64_t fewest = (row_numel + largest_block(bits) - 1) / largest_block(bits);
  form_ = {
      .bits = bits, .width = row_numel, .block = round_up((row_numel + fewest - 1) / fewest, int64_t{2})};
  form_.num_blocks = (row_numel + form_.block - 1) / form_.block;
  form_.row_bytes = form_.num_blocks * kScaleBytes + code_bytes(form_);
}

int64_t RowCodes::num_bytes(int64_t numel) const {
  TESSERA_ASSERT(numel % form_.width == 0, "whole rows");
  return numel / form_.width * form_.row_bytes;
}

void RowCodes::encode(const at::Tensor& codes, const at::Tensor& values) const {
  const trace::Scope trace_scope("encode_rows");
  const at::NoGradGuard no_grad;
  TESSERA_ASSERT(codes.numel() == num_bytes(values.numel()), "a byte tensor for the codes of these values");
  const int64_t rows = values.numel() / form_.width;
  if (rows == 0) return;
  if (!has_kernel(values, codes)) return encode_plainly(codes, values, form_, rows);
  dispatch(values.scalar_type(), [&](auto tag) {
    const auto* from = read<decltype(tag)>(values);
    auto* to = write<uint8_t>(codes);
    at::parallel_for(0, rows, rows_per_task(form_.width), [&](int64_t begin, int64_t end) {
      kernels::encode_rows(from + begin * form_.width, end - begin, form_, to + begin * form_.row_bytes);
    });
  });
}

void RowCodes::decode(const at::Tensor& values, const at::Tensor& codes, bool adds) const {
  const trace::Scope trace_scope("decode_rows");
  const at::NoGradGuard no_grad;
  TESSERA_ASSERT(codes.numel() == num_bytes(values.numel()), "the codes of as many values");
  const int64_t rows = values.numel() / form_.width;
  if (rows == 0) return;
  if (!has_kernel(values, codes)) {
    const at::Tensor decoded = decoded_plainly(codes, form_, rows).reshape(values.sizes());
    adds ? values.add_(decoded) : values.copy_(decoded);
    return;
  }
  dispatch(values.scalar_type(), [&](auto tag) {
    const auto* from = read<uint8_t>(codes);
    auto* to = write<decltype(tag)>(values);
    at::parallel_for(0, rows, rows_per_task(form_.width), [&](int64_t begin, int64_t end) {
      kernels::decode_rows(from + begin * form_.row_bytes, end - begin, form_, to + begin * form_.width,
                           adds);
    });
  });
}

void RowCodes::decode(const at::Tensor& values, const at::Tensor& codes) const {
  decode(values, codes, /*adds=*/false);
}

void RowCodes::add(const at::Tensor& sums, const at::Tensor& codes) const {
  decode(sums, codes, /*adds=*/true);
}

void RowCodes::round(const at::Tensor& to, const at::Tensor& values) const {
  const at::Tensor codes =
      at::empty({num_bytes(values.numel())}, at::TensorOptions(values.device()).dtype(at::kByte));
  encode(codes, values);
  decode(to, codes);
}

}  // namespace tessera::ops
