#include "tessera/ops/row_codes.h"

#include <limits>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace tessera::ops {
namespace {

at::Tensor random_values(int64_t rows, int64_t width, at::ScalarType type = at::kFloat) {
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(17);
  // Rows differ in size by orders of magnitude, as the rows of gradients do.
  const at::Tensor sizes = at::randn({rows, 1}, generator, at::TensorOptions(at::kDouble)).mul_(3.0).exp_();
  return (at::randn({rows, width}, generator, at::TensorOptions(at::kDouble)) * sizes).to(type);
}

at::Tensor encoded(const RowCodes& codes, const at::Tensor& values) {
  const at::Tensor bytes =
      at::empty({codes.num_bytes(values.numel())}, at::TensorOptions(at::kCPU).dtype(at::kByte));
  codes.encode(bytes, values);
  return bytes;
}

at::Tensor rounded(const RowCodes& codes, const at::Tensor& values) {
  const at::Tensor to = at::empty_like(values);
  codes.round(to, values);
  return to;
}

TEST(RowCodesTest, BytesAreThoseOfCodesAndScales) {
  EXPECT_EQ(RowCodes(8, 576).num_bytes(10 * 576), 10 * (576 + 3 * 4));
  EXPECT_EQ(RowCodes(4, 576).num_bytes(10 * 576), 10 * (288 + 5 * 4));
  EXPECT_EQ(RowCodes(8, 256).num_bytes(256), 256 + 4);
  EXPECT_EQ(RowCodes(8, 257).num_bytes(257), 257 + 2 * 4);
  EXPECT_EQ(RowCodes(4, 5).num_bytes(15), 3 * (3 + 4));
  // Two gathers and a reduction take less than a fourth of what they take in float32.
  for (const int64_t width : {64, 576, 2048, 8192})
    EXPECT_LT(4 * (2 * RowCodes(8, width).num_bytes(width) + RowCodes(4, width).num_bytes(width)),
              3 * 4 * width);
}

TEST(RowCodesTest, ErrorsAreAtMostHalfOfTheScaleOfTheirBlock) {
  for (const int bits : {8, 4}) {
    const double largest_code = bits == 8 ? 127.0 : 7.0;
    for (const int64_t width : {1, 2, 5, 127, 128, 129, 256, 300, 576}) {
      const int64_t most = RowCodes::largest_block(bits), fewest = (width + most - 1) / most;
      const int64_t block = ((width + fewest - 1) / fewest + 1) / 2 * 2;
      const RowCodes codes(bits, width);
      for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
        const at::Tensor values = random_values(7, width, type), back = rounded(codes, values);
        for (int64_t begin = 0; begin < width; begin += block) {
          const int64_t size = std::min(block, width - begin);
          const at::Tensor from = values.narrow(1, begin, size), to = back.narrow(1, begin, size);
          const at::Tensor scale = from.abs().amax(1, true) / largest_code;
          EXPECT_TRUE(((to - from).abs() <= scale * (0.5 + 1e-4)).all().item<bool>()) << bits << ' ' << width;
          // The largest magnitude keeps its value, and its sign.
          const at::Tensor at = from.abs().argmax(1, true);
          EXPECT_TRUE(at::allclose(to.gather(1, at), from.gather(1, at), 1e-6, 0.0));
        }
      }
    }
  }
}

// A row that is cut out of others has the same codes, so they do not depend on the number of ranks.
TEST(RowCodesTest, ARowHasTheSameCodesAlone) {
  const RowCodes codes(8, 300);
  const at::Tensor values = random_values(5, 300);
  const at::Tensor all = encoded(codes, values).view({5, -1});
  for (int64_t row = 0; row < 5; ++row) EXPECT_TRUE(encoded(codes, values[row]).equal(all[row]));
}

// Values that are not dense take LibTorch's operations, as those on other devices do.
TEST(RowCodesTest, TheKernelsGiveTheBitsOfLibTorchsOperations) {
  for (const int bits : {8, 4}) {
    for (const int64_t width : {1, 5, 127, 128, 130, 256, 300, 576}) {
      const RowCodes codes(bits, width);
      const at::Tensor values = random_values(9, width);
      const at::Tensor strided = at::stack({values, values}, 2).select(2, 0);
      const at::Tensor bytes = encoded(codes, values);
      EXPECT_TRUE(bytes.equal(encoded(codes, strided))) << bits << ' ' << width;
      const at::Tensor dense = at::empty_like(values),
                       apart = at::empty({9, width, 2}, values.options()).select(2, 0);
      codes.decode(dense, bytes);
      codes.decode(apart, bytes);
      EXPECT_TRUE(dense.equal(apart)) << bits << ' ' << width;
    }
  }
}

TEST(RowCodesTest, BFloat16IsCodedLikeItsValuesInFloat) {
  const RowCodes codes(8, 100);
  const at::Tensor narrow = random_values(4, 100).to(at::kBFloat16);
  EXPECT_TRUE(encoded(codes, narrow).equal(encoded(codes, narrow.to(at::kFloat))));
  EXPECT_TRUE(rounded(codes, narrow).equal(rounded(codes, narrow.to(at::kFloat)).to(at::kBFloat16)));
}

TEST(RowCodesTest, AddsToWhatIsThere) {
  const RowCodes codes(4, 40);
  const at::Tensor values = random_values(3, 40), sums = at::ones({3, 40}, at::kFloat);
  codes.add(sums, encoded(codes, values));
  EXPECT_TRUE(sums.equal(rounded(codes, values) + 1.0f));
}

TEST(RowCodesTest, ABlockOfZerosComesBackAsZeros) {
  for (const int bits : {8, 4})
    EXPECT_TRUE(rounded(RowCodes(bits, 33), at::zeros({2, 33}, at::kFloat)).eq(0).all().item<bool>());
}

// A gradient that overflowed must not look like a good one.
TEST(RowCodesTest, ABlockWithANumberThatIsNotFiniteIsNotFinite) {
  for (const int bits : {8, 4}) {
    for (const float bad :
         {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
      at::Tensor values = random_values(3, 100);
      values[1][37] = bad;
      const at::Tensor back = rounded(RowCodes(bits, 100), values);
      EXPECT_FALSE(back[1][37].isfinite().item<bool>());
      EXPECT_TRUE(back[0].isfinite().all().item<bool>());
      EXPECT_TRUE(back[2].isfinite().all().item<bool>());
    }
  }
}

}  // namespace
}  // namespace tessera::ops
