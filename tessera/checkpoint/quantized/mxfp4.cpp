// Codes of e2m1 with a power of two for each 32 columns (OCP Microscaling Formats, version 1.0, section 5).
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include <ATen/ATen.h>

#include "tessera/checkpoint/quantized/codes.h"
#include "tessera/checkpoint/quantized/formats.h"
#include "tessera/checkpoint/quantized/grid.h"
#include "tessera/core/strings.h"
#include "tessera/device/device.h"

namespace tessera::checkpoint::quantized {
namespace {

constexpr std::string_view kBlocks = "_blocks", kScales = "_scales";
constexpr std::string_view kSuffixes[] = {kBlocks, kScales};
constexpr int64_t kGroup = 32;

// The scales of the matrices of a stack, [matrices, rows, groups], as one grid of all rows.
class StackedExponents : public Grid {
 public:
  StackedExponents(Files files, const io::TensorInfo& tensor) : files_(std::move(files)), tensor_(&tensor) {}

  at::Tensor read(int64_t first_row, int64_t rows, int64_t first_group, int64_t groups) const override {
    const int64_t all = tensor_->shape.back();
    std::vector<uint8_t> bytes(static_cast<size_t>(rows * all));
    files_->read(tensor_->name, first_row * all, rows * all, bytes.data());
    at::Tensor values = at::empty({rows, groups}, on_host(at::kFloat));
    float* to = values.mutable_data_ptr<float>();
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t group = first_group; group < first_group + groups; ++group)
        *to++ = power_of_two(bytes[static_cast<size_t>(row * all + group)]);
    }
    return values;
  }

 private:
  const Files files_;
  const io::TensorInfo* const tensor_;
};

}  // namespace

Found find_mxfp4(const Folder& folder) {
  Found found;
  for (const Parts& parts : modules_of(*folder.files, kSuffixes)) {
    const io::TensorInfo& blocks = parts.require(kBlocks, {DType::U8});
    const io::TensorInfo& scales = parts.require(kScales, {DType::U8});
    std::vector<int64_t> need = scales.shape;
    need.push_back(kGroup / 2);
    if (scales.shape.size() != 3 || blocks.shape != need) {
      throw broken(*folder.files, blocks.name, "the blocks and the scales of a weight have other shapes")
          .got(format_shape(blocks.shape) + " and " + format_shape(scales.shape))
          .need("[matrices, out, in / 32, 16] and [matrices, out, in / 32]");
    }
    const int64_t matrices = blocks.shape[0], columns = kGroup * blocks.shape[2];
    check_size(parts, kBlocks, matrices, blocks.shape[1]);
    CodedWeight weight =
        make_weight(parts, kBlocks, matrices * blocks.shape[1], columns, io::BlockKind::E2m1, kGroup);
    weight.spec.name = parts.path();
    weight.matrices = matrices;
    weight.codes = flat_nibbles(folder.files, blocks, columns, /*low_first=*/true);
    weight.scales = grid_scales(Groups::in_order(columns, kGroup),
                                std::make_shared<StackedExponents>(folder.files, scales));
    parts.note_used(kSuffixes, found);
    found.weights.push_back(std::move(weight));
  }
  return found;
}

}  // namespace tessera::checkpoint::quantized
