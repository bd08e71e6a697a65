#include <ATen/ATen.h>

#include "tessera/checkpoint/quantized/codes.h"
#include "tessera/checkpoint/quantized/formats.h"
#include "tessera/checkpoint/quantized/grid.h"
#include "tessera/checkpoint/stored_tensors.h"
#include "tessera/core/strings.h"
#include "tessera/device/host_memory.h"

namespace tessera::checkpoint::quantized {
namespace {

constexpr std::string_view kCodes = ".qweight", kZeros = ".qzeros", kScales = ".scales";
constexpr std::string_view kSuffixes[] = {kCodes, kZeros, kScales};

// Zero codes, eight rows of the weight a word: [groups, out / 8].
class AwqZeros : public Grid {
 public:
  AwqZeros(Files files, const io::TensorInfo& tensor) : files_(std::move(files)), tensor_(&tensor) {}

  at::Tensor read(int64_t first_row, int64_t rows, int64_t first_group, int64_t groups) const override {
    const int64_t word = first_row / 8, count = (first_row + rows - 1) / 8 - word + 1;
    const at::Tensor words = at::empty({groups, count}, on_host(at::kInt));
    read_box(*files_, tensor_->name, {{first_group, word}, {groups, count}}, words);
    const at::Tensor zeros = at::empty({rows, groups}, on_host(at::kFloat));
    const int32_t* const from = words.const_data_ptr<int32_t>();
    float* to = zeros.mutable_data_ptr<float>();
    for (int64_t row = first_row; row < first_row + rows; ++row) {
      for (int64_t group = 0; group < groups; ++group) {
        const auto bits = static_cast<uint32_t>(from[group * count + row / 8 - word]);
        *to++ = static_cast<float>(bits >> (4 * awq_place(row)) & 15);
      }
    }
    return zeros;
  }

 private:
  const Files files_;
  const io::TensorInfo* const tensor_;
};

void check_config(const io::JsonReader& config) {
  for (const std::string key : {"version", "format", "checkpoint_format"}) {
    if (!config.has(key)) continue;
    const std::string version = lower(config.text(key));
    if (version != "gemm") {
      refuse(config, key, "the AWQ layout '" + version + "' cannot be read",
             "the GEMM version is read: quantise the model again with version: GEMM");
    }
  }
  if (const std::string backend = lower(config.text("backend", "autoawq")); backend == "llm-awq") {
    refuse(config, "backend", "the AWQ layout of llm-awq cannot be read",
           "quantise the model again with AutoAWQ, version: GEMM");
  }
  for (const char* key : {"bits", "w_bit"}) {
    if (config.has(key) && config.integer(key, 1, 16) != 4) {
      refuse(config, key, "AWQ weights of other widths than 4 bits cannot be read", "use a model of 4 bits");
    }
  }
}

CodedWeight weight_of(const Folder& folder, const Parts& parts) {
  const io::TensorInfo& codes = parts.require_matrix(kCodes, {DType::I32});
  const io::TensorInfo& scales = parts.require_matrix(kScales, {DType::F16, DType::BF16, DType::F32});
  const int64_t columns = codes.shape[0], rows = scales.shape[1], groups = scales.shape[0];
  check_size(parts, kCodes, rows, columns);
  if (codes.shape[1] * 8 != rows) {
    throw broken(parts.files(), codes.name, "not eight outputs a word")
        .got(format_shape(codes.shape))
        .need(std::to_string(rows) + " outputs, as in the scales");
  }
  if (columns % groups != 0) {
    throw broken(parts.files(), scales.name, "the groups do not divide the inputs")
        .got(std::to_string(groups) + " groups")
        .need("a divisor of " + std::to_string(columns));
  }
  const io::TensorInfo& zeros = parts.require_matrix(kZeros, {DType::I32}, groups, rows / 8);
  const int64_t group = columns / groups;
  CodedWeight weight = make_weight(parts, kCodes, rows, columns, io::BlockKind::Affine4, group);
  weight.is_by_columns = true;
  weight.codes = awq_codes(folder.files, codes);
  weight.scales = grid_scales(Groups::in_order(columns, group),
                              stored_grid(folder.files, scales, rows, groups, {.is_turned = true}),
                              std::make_shared<AwqZeros>(folder.files, zeros));
  return weight;
}

}  // namespace

Found find_awq(const Folder& folder) {
  check_config(folder.config);
  Found found;
  for (const Parts& parts : modules_of(*folder.files, kSuffixes)) {
    found.weights.push_back(weight_of(folder, parts));
    parts.note_used(kSuffixes, found);
  }
  return found;
}

}  // namespace tessera::checkpoint::quantized
