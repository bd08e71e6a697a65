#include "tessera/checkpoint/coded_source.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tessera/device/device.h"
#include "tessera/ops/weight.h"
#include "tessera/parallel/box_part.h"

namespace tessera::checkpoint {
namespace {

using parallel::Box;

// Gives one tensor under every name.
class OneTensor : public ParameterSource {
 public:
  explicit OneTensor(at::Tensor values) : values_(std::move(values)) {}
  bool holds(const std::string&) const override { return true; }
  std::optional<DType> stored_dtype(const std::string&) const override { return DType::F32; }
  void read(const std::string&, const Box& box, const at::Tensor& destination) const override {
    destination.copy_(parallel::box_part(values_, box));
  }

 private:
  at::Tensor values_;
};

CodedParameter four_bits(int64_t rows, int64_t columns, bool is_double, int64_t elements) {
  CodedParameter coded;
  coded.form = io::block_form(io::BlockKind::Nf4, elements);
  coded.shape = {rows, columns};
  coded.quantization = Quantization{64, is_double};
  return coded;
}

at::Tensor read(const ParameterSource& source, const std::string& name, const Box& box) {
  const at::Tensor blocks = at::empty(box.size, on_host(at::kByte));
  source.read(name, box, blocks);
  return blocks;
}

// Groups run in the flat order of the whole weight: at 24 columns most of them straddle two rows, and the
// last one is short.
TEST(CodedSource, GivesTheSameCodesForAnyBox) {
  at::manual_seed(11);
  for (const int64_t columns : {24, 64, 128}) {
    for (const bool is_double : {false, true}) {
      const int64_t rows = 50, elements = columns == 24 ? 8 : 32;
      const at::Tensor values = at::randn({rows, columns});
      const CodedParameter coded = four_bits(rows, columns, is_double, elements);
      const auto source = coded_source(std::make_shared<OneTensor>(values), nullptr, {{"w", coded}});
      const int64_t bytes = coded.form.row_bytes(columns);
      const at::Tensor whole = read(*source, "w", {{0, 0}, {rows, bytes}});
      for (int64_t row = 0; row < rows; row += 7) {
        for (int64_t block = 0; block < columns / elements; ++block) {
          const Box box{{row, block * coded.form.bytes}, {1, bytes - block * coded.form.bytes}};
          EXPECT_TRUE(at::equal(read(*source, "w", box), parallel::box_part(whole, box)));
        }
      }
      // A second source that never saw the whole.
      const auto other = coded_source(std::make_shared<OneTensor>(values), nullptr, {{"w", coded}});
      const Box last{{rows - 3, 0}, {3, bytes}};
      EXPECT_TRUE(at::equal(read(*other, "w", last), parallel::box_part(whole, last)));
    }
  }
}

TEST(CodedSource, QuantisesByTheLargestOfEachGroup) {
  at::manual_seed(12);
  const int64_t rows = 11, columns = 24;
  const at::Tensor values = at::randn({rows, columns});
  const CodedParameter coded = four_bits(rows, columns, false, 8);
  const auto source = coded_source(std::make_shared<OneTensor>(values), nullptr, {{"w", coded}});
  const at::Tensor blocks = read(*source, "w", {{0, 0}, {rows, coded.form.row_bytes(columns)}});
  const at::Tensor got = ops::Weight(blocks, coded.form).rows(0, rows, at::kFloat).flatten();
  const at::Tensor flat = values.flatten();
  for (int64_t first = 0; first < flat.numel(); first += 64) {
    const int64_t count = std::min<int64_t>(64, flat.numel() - first);
    const at::Tensor group = flat.narrow(0, first, count), own = got.narrow(0, first, count);
    const float scale = group.abs().max().item<float>();
    // The largest element is exact, and no element is further away than half the widest gap of the codes.
    EXPECT_EQ(own.abs().max().item<float>(), scale);
    EXPECT_LE((own - group).abs().max().item<float>(), 0.153f * scale);
  }
}

TEST(CodedSource, QuantisesRowsToEightBits) {
  at::manual_seed(13);
  const at::Tensor values = at::randn({5, 96});
  values[3].zero_();
  CodedParameter coded;
  coded.form = io::block_form(io::BlockKind::LlmInt8, 32);
  coded.shape = {5, 96};
  coded.quantization = Quantization{0, false};
  const auto source = coded_source(std::make_shared<OneTensor>(values), nullptr, {{"w", coded}});
  const int64_t bytes = coded.form.row_bytes(96);
  const at::Tensor whole = read(*source, "w", {{0, 0}, {5, bytes}});
  const at::Tensor got = ops::Weight(whole, coded.form).rows(0, 5, at::kFloat);
  const at::Tensor step = values.abs().amax(1, true) / 127;
  EXPECT_TRUE(((got - values).abs() <= 0.51 * step + 1e-6).all().item<bool>());
  const Box part{{1, coded.form.bytes}, {4, coded.form.bytes}};
  EXPECT_TRUE(at::equal(read(*source, "w", part), parallel::box_part(whole, part)));
}

}  // namespace
}  // namespace tessera::checkpoint
