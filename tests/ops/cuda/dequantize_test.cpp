#include "tessera/io/ggml_quants.h"

#include "tests/ops/cuda/machine.h"

namespace tessera::ops::cuda {
namespace {

class DequantizeKernel : public KernelTest {};

std::vector<uint8_t> random_bytes(int64_t n, uint64_t stream) {
  const CounterRng rng(20261123, stream);
  std::vector<uint8_t> bytes(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i)
    bytes[static_cast<size_t>(i)] = static_cast<uint8_t>(rng.bits(static_cast<uint64_t>(i)));
  return bytes;
}

template <class T>
void check_format(io::GgmlType type, int64_t num_blocks, int64_t offset) {
  const int64_t n = num_blocks * io::ggml_block_elements(type);
  // Any bytes make a valid block; its scales range from denormal numbers to NaN.
  const auto bytes = random_bytes(num_blocks * io::ggml_block_bytes(type), static_cast<uint64_t>(type));
  std::vector<float> exact(static_cast<size_t>(n));
  io::dequantize_ggml(type, bytes.data(), num_blocks, exact.data());
  const Array<uint8_t> blocks(bytes, offset);
  const Array<T> to(n, offset);
  ASSERT_EQ(machine()->kernels().dequantize_ggml(static_cast<uint32_t>(type), blocks.data(), num_blocks,
                                                 type_of<T>(), to.data(), nullptr),
            0);
  const std::vector<T> got = to.values();
  for (size_t i = 0; i < got.size(); ++i) {
    T want;
    set_value(exact[i], want);
    if (std::isnan(exact[i])) {
      ASSERT_TRUE(std::isnan(value_of(got[i]))) << i;
    } else {
      ASSERT_EQ(std::memcmp(&got[i], &want, sizeof(T)), 0)
          << i << ": got " << value_of(got[i]) << ", need " << exact[i];
    }
  }
}

TEST_F(DequantizeKernel, BlocksOfEveryFormatAreTheCpusBits) {
  using io::GgmlType;
  for (const GgmlType type :
       {GgmlType::F16, GgmlType::BF16, GgmlType::Q4_0, GgmlType::Q4_1, GgmlType::Q5_0, GgmlType::Q5_1,
        GgmlType::Q8_0, GgmlType::Q4_K, GgmlType::Q5_K, GgmlType::Q6_K}) {
    for (const int64_t num_blocks : {0, 1, 5, 40}) {
      for (const int64_t offset : {0, 1}) {
        SCOPED_TRACE(io::ggml_type_name(static_cast<uint32_t>(type)) + ", " + std::to_string(num_blocks) +
                     " blocks");
        check_format<float>(type, num_blocks, offset);
        check_format<Bf16Bits>(type, num_blocks, offset);
        check_format<HalfBits>(type, num_blocks, offset);
      }
    }
  }
}

TEST_F(DequantizeKernel, FormatsThatCannotBeReadAreRefused) {
  const Array<float> x(64);
  EXPECT_NE(kernels().dequantize_ggml(10, x.data(), 1, Type::F32, x.data(), nullptr), 0);  // Q2_K
  EXPECT_NE(kernels().dequantize_ggml(2, x.data(), 1, Type::F64, x.data(), nullptr), 0);
  EXPECT_NE(kernels().dequantize_nf4(x.data(), x.data(), 0, Type::F32, x.data(), 8, nullptr), 0);
}

// NF4 is defined in appendix E of the QLoRA paper: its levels, and two codes in a byte, the first in the
// high half.
TEST_F(DequantizeKernel, Nf4) {
  const double levels[16] = {-1.0,
                             -0.6961928009986877,
                             -0.5250730514526367,
                             -0.39491748809814453,
                             -0.28444138169288635,
                             -0.18477343022823334,
                             -0.09105003625154495,
                             0.0,
                             0.07958029955625534,
                             0.16093020141124725,
                             0.24611230194568634,
                             0.33791524171829224,
                             0.44070982933044434,
                             0.5626170039176941,
                             0.7229568362236023,
                             1.0};
  for_types([&](auto tag) {
    using T = decltype(tag);
    for (const int64_t n : edge_lengths()) {
      for (const int64_t block : {1, 3, 64, 4096}) {
        for (const int64_t offset : {0, 1}) {
          const auto codes = random_bytes((n + 1) / 2, 1);
          const auto scales = random_values<float>((n + block - 1) / block, 2);
          std::vector<T> want(static_cast<size_t>(n));
          for (int64_t i = 0; i < n; ++i) {
            const uint8_t byte = codes[static_cast<size_t>(i / 2)];
            const auto level = static_cast<float>(levels[i % 2 == 0 ? byte >> 4 : byte & 15]);
            set_value(level * scales[static_cast<size_t>(i / block)], want[static_cast<size_t>(i)]);
          }
          const Array<uint8_t> packed(codes, offset);
          const Array<float> of_blocks(scales);
          const Array<T> to(n, offset);
          ASSERT_EQ(machine()->kernels().dequantize_nf4(packed.data(), of_blocks.data(), block, type_of<T>(),
                                                        to.data(), n, nullptr),
                    0);
          expect_same_bits(to.values(), want,
                           std::to_string(n) + " elements in blocks of " + std::to_string(block));
        }
      }
    }
  });
}

}  // namespace
}  // namespace tessera::ops::cuda
