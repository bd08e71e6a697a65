// Random weights in blocks of codes, and the forms that they take.
#pragma once

#include <vector>

#include <ATen/ATen.h>

#include "tessera/io/ggml_quantize.h"
#include "tessera/ops/weight.h"

namespace tessera::ops::checks {

// A form of each kind; rows are whole blocks where their length is a multiple of `columns`.
struct FormCase {
  io::BlockForm form;
  int64_t columns;
};
inline std::vector<FormCase> form_cases() {
  using io::BlockKind;
  std::vector<FormCase> cases;
  for (const BlockKind kind : {BlockKind::Nf4, BlockKind::Fp4, BlockKind::E2m1, BlockKind::Int8,
                               BlockKind::LlmInt8, BlockKind::E4m3, BlockKind::Affine4, BlockKind::Affine8}) {
    cases.push_back({io::block_form(kind, 64), 64});
  }
  cases.push_back({io::block_form(BlockKind::Nf4, 6), 6});
  cases.push_back({io::block_form(BlockKind::Affine4, 16), 16});
  for (const io::GgmlType type :
       {io::GgmlType::Q4_0, io::GgmlType::Q5_0, io::GgmlType::Q8_0, io::GgmlType::Q4_K, io::GgmlType::Q6_K}) {
    cases.push_back({io::block_form(type), io::ggml_block_elements(type)});
  }
  return cases;
}

// Returns a weight [rows, columns] of values around 1.
inline Weight random_weight(const io::BlockForm& form, int64_t rows, int64_t columns) {
  const at::Tensor stored = at::empty({rows, form.row_bytes(columns)}, at::kByte);
  auto* to = static_cast<uint8_t*>(stored.mutable_data_ptr());
  const int64_t blocks = rows * columns / form.elements;
  if (form.kind == io::BlockKind::Ggml) {
    const at::Tensor values = at::randn({rows, columns});
    io::quantize_ggml(form.ggml, values.const_data_ptr<float>(), blocks, to);
    return {stored, form};
  }
  const bool is_wide = form.kind == io::BlockKind::Int8 || form.kind == io::BlockKind::LlmInt8 ||
                       form.kind == io::BlockKind::E4m3 || form.kind == io::BlockKind::Affine8;
  // The codes 127 and 255 of e4m3 are NaN.
  const at::Tensor any = at::randint(is_wide ? 256 : 16, {blocks, form.elements}, at::kByte),
                   codes = any.masked_fill(any.bitwise_and(127).eq(127), 5), scales = at::randn({blocks}),
                   zeros = at::randint(8, {blocks}, at::kFloat);
  for (int64_t i = 0; i < blocks; ++i) {
    io::write_block(form, scales[i].item<float>() / (is_wide ? 50.0f : 4.0f), zeros[i].item<float>(),
                    codes.const_data_ptr<uint8_t>() + i * form.elements, to + i * form.bytes);
  }
  return {stored, form};
}

}  // namespace tessera::ops::checks
