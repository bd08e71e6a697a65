// Expands quantised weights: ggml's blocks as io/ggml_quants.cpp does, and NF4.
#include "tessera/ops/cuda/entries.cuh"
#include "tessera/ops/cuda/launch.cuh"

namespace tessera::ops::cuda {
namespace {

constexpr int kRun = 8;  // elements of a block that a thread expands; divides the size of every block

// Blocks lie at any address, so they are read byte by byte.
__device__ uint32_t load_16(const uint8_t* from) { return from[0] | static_cast<uint32_t>(from[1]) << 8; }
__device__ float load_half(const uint8_t* from) {
  return half_to_float(static_cast<uint16_t>(load_16(from)));
}

// A format is a struct whose expand() makes the elements first .. first + kRun - 1 of a block; first is a
// multiple of kRun. Products and sums are rounded one by one, as on the host.

// Blocks of half d, [half m], [32 fifth bits], and 16 bytes that hold element i in the low and element i + 16
// in the high four bits. The value is d (q - kZero) + m.
template <int kZero, bool kHasMinimum, bool kHasFifthBit>
struct Legacy {
  static constexpr int kBits = kHasMinimum ? 4 : 2, kNibbles = kBits + (kHasFifthBit ? 4 : 0);
  static constexpr int kElements = 32, kBytes = kNibbles + 16;

  __device__ static Floats<kRun> expand(const uint8_t* block, int first) {
    const float scale = load_half(block), minimum = kHasMinimum ? load_half(block + 2) : 0.0f;
    const uint32_t fifth = kHasFifthBit ? load_16(block + kBits) | load_16(block + kBits + 2) << 16 : 0;
    Floats<kRun> to;
#pragma unroll
    for (int i = 0; i < kRun; ++i) {
      int q = block[kNibbles + first % 16 + i] >> (first / 16 * 4) & 15;
      if (kHasFifthBit) q |= static_cast<int>(fifth >> (first + i) & 1) << 4;
      to.v[i] = scale * static_cast<float>(q - kZero);
      if (kHasMinimum) to.v[i] = to.v[i] + minimum;
    }
    return to;
  }
};

// Blocks of half d and 32 signed bytes.
struct Q8 {
  static constexpr int kElements = 32, kBytes = 34;

  __device__ static Floats<kRun> expand(const uint8_t* block, int first) {
    const float scale = load_half(block);
    Floats<kRun> to;
#pragma unroll
    for (int i = 0; i < kRun; ++i)
      to.v[i] = scale * static_cast<float>(static_cast<int8_t>(block[2 + first + i]));
    return to;
  }
};

// Blocks of half d, half dmin, 12 bytes of scales, [32 bytes of fifth bits], and 128 bytes of four bits. In
// each 64 elements the first 32 are the low halves, and the last 32 the high halves, of 32 bytes. There are 8
// scales and 8 minimums of 6 bits each: the first four of both stand in the low six bits of bytes 0-7; the
// last four have their low bits in bytes 8-11, and their high bits on top of bytes 0-7.
template <bool kHasFifthBit>
struct Q45K {
  static constexpr int kFifth = 16, kNibbles = kHasFifthBit ? 48 : 16;
  static constexpr int kElements = 256, kBytes = kNibbles + 128;

  __device__ static Floats<kRun> expand(const uint8_t* block, int first) {
    const int group = first / 32, in_group = first % 32;
    const uint8_t* packed = block + 4;
    int scale, minimum;
    if (group < 4) {
      scale = packed[group] & 63;
      minimum = packed[group + 4] & 63;
    } else {
      scale = (packed[group + 4] & 15) | packed[group - 4] >> 6 << 4;
      minimum = packed[group + 4] >> 4 | packed[group] >> 6 << 4;
    }
    const float d = load_half(block) * static_cast<float>(scale);
    const float m = load_half(block + 2) * static_cast<float>(minimum);
    Floats<kRun> to;
#pragma unroll
    for (int i = 0; i < kRun; ++i) {
      int q = block[kNibbles + group / 2 * 32 + in_group + i] >> (group % 2 * 4) & 15;
      if (kHasFifthBit) q |= (block[kFifth + in_group + i] >> group & 1) << 4;
      const float product = d * static_cast<float>(q);
      to.v[i] = product - m;
    }
    return to;
  }
};

// Blocks of 128 bytes of low four bits, 64 bytes of high two bits, 16 signed scales, and half d. Each half of
// the block (128 elements, 64 + 32 bytes) holds four runs of 32; each scale serves 16 elements.
struct Q6K {
  static constexpr int kElements = 256, kBytes = 210;

  __device__ static Floats<kRun> expand(const uint8_t* block, int first) {
    const int run = first / 32, half = run / 4, quarter = run % 4, in_run = first % 32;
    const uint8_t* low = block + half * 64 + quarter % 2 * 32 + in_run;
    const uint8_t* high = block + 128 + half * 32 + in_run;
    const float scale =
        load_half(block + 208) * static_cast<float>(static_cast<int8_t>(block[192 + first / 16]));
    Floats<kRun> to;
#pragma unroll
    for (int i = 0; i < kRun; ++i) {
      const int q = (low[i] >> (quarter / 2 * 4) & 15) | (high[i] >> (quarter * 2) & 3) << 4;
      to.v[i] = scale * static_cast<float>(q - 32);
    }
    return to;
  }
};

// Plain numbers at any address; a block of ggml's has one of them.
template <class T>
struct Plain {
  static constexpr int kElements = 1;
};

// Stores the `count` elements that a thread has expanded at `to` of a tensor.
template <class T>
__device__ void store_run(T* to, const Floats<kRun>& values, int64_t count) {
  if (count >= kRun && reinterpret_cast<uintptr_t>(to) % 16 == 0) {
    store(to, values);
    return;
  }
#pragma unroll
  for (int i = 0; i < kRun; ++i) {
    if (i < count) narrow(values.v[i], to[i]);
  }
}

// Item i of map() is kRun elements of a block, or one plain number.
template <class Format, class T>
struct Expand {
  const uint8_t* blocks;
  T* to;

  template <int>
  __device__ void run(int64_t item) const {
    constexpr int kRuns = Format::kElements / kRun;
    const int64_t block = item / kRuns;
    const int first = static_cast<int>(item % kRuns) * kRun;
    store_run(to + item * kRun, Format::expand(blocks + block * Format::kBytes, first), kRun);
  }
};
template <class S, class T>
struct Expand<Plain<S>, T> {
  const uint8_t* blocks;
  T* to;

  template <int>
  __device__ void run(int64_t item) const {
    const S stored = {static_cast<uint16_t>(load_16(blocks + 2 * item))};
    narrow(widen(stored), to[item]);
  }
};

template <class Format, class T>
int32_t expand(const void* blocks, int64_t num_blocks, void* to, void* stream) {
  constexpr int64_t kItems = Format::kElements == 1 ? 1 : Format::kElements / kRun;
  const Expand<Format, T> op = {static_cast<const uint8_t*>(blocks), static_cast<T*>(to)};
  return map<1>(op, num_blocks * kItems, true, stream);
}

// The levels of NF4: quantiles of the normal distribution, scaled to [-1, 1] (QLoRA, appendix E).
__device__ constexpr float kLevels[16] = {-1.0f,
                                          -0.6961928009986877f,
                                          -0.5250730514526367f,
                                          -0.39491748809814453f,
                                          -0.28444138169288635f,
                                          -0.18477343022823334f,
                                          -0.09105003625154495f,
                                          0.0f,
                                          0.07958029955625534f,
                                          0.16093020141124725f,
                                          0.24611230194568634f,
                                          0.33791524171829224f,
                                          0.44070982933044434f,
                                          0.5626170039176941f,
                                          0.7229568362236023f,
                                          1.0f};

// Item i of map() is kRun elements, which are four bytes of codes.
template <class T>
struct ExpandNf4 {
  const uint8_t* codes;
  const float* scales;
  int64_t block, n;
  T* to;

  template <int>
  __device__ void run(int64_t item) const {
    const int64_t first = item * kRun;
    const int count = n - first < kRun ? static_cast<int>(n - first) : kRun;
    int64_t number = first / block,
            left = block - (first - number * block);  // left in the block of the next element
    Floats<kRun> values;
#pragma unroll
    for (int i = 0; i < kRun; ++i) {
      values.v[i] = 0.0f;
      if (i >= count) continue;
      const uint8_t byte = codes[(first + i) / 2];
      values.v[i] = kLevels[i % 2 == 0 ? byte >> 4 : byte & 15] * scales[number];
      if (--left == 0) left = block, ++number;
    }
    store_run(to + first, values, count);
  }
};

}  // namespace

int32_t dequantize_ggml(uint32_t ggml_type, const void* blocks, int64_t num_blocks, Type to_type, void* to,
                        void* stream) {
  return dispatch_stored(to_type, [&](auto tag) -> int32_t {
    using T = decltype(tag);
    switch (ggml_type) {
      case 1: return expand<Plain<Half>, T>(blocks, num_blocks, to, stream);
      case 2: return expand<Legacy<8, false, false>, T>(blocks, num_blocks, to, stream);
      case 3: return expand<Legacy<0, true, false>, T>(blocks, num_blocks, to, stream);
      case 6: return expand<Legacy<16, false, true>, T>(blocks, num_blocks, to, stream);
      case 7: return expand<Legacy<0, true, true>, T>(blocks, num_blocks, to, stream);
      case 8: return expand<Q8, T>(blocks, num_blocks, to, stream);
      case 12: return expand<Q45K<false>, T>(blocks, num_blocks, to, stream);
      case 13: return expand<Q45K<true>, T>(blocks, num_blocks, to, stream);
      case 14: return expand<Q6K, T>(blocks, num_blocks, to, stream);
      case 30: return expand<Plain<Bf16>, T>(blocks, num_blocks, to, stream);
      default: return cudaErrorInvalidValue;
    }
  });
}

int32_t dequantize_nf4(const void* codes, const float* scales, int64_t block, Type to_type, void* to,
                       int64_t n, void* stream) {
  if (block <= 0) return cudaErrorInvalidValue;
  return dispatch_stored(to_type, [&](auto tag) {
    using T = decltype(tag);
    const ExpandNf4<T> op = {static_cast<const uint8_t*>(codes), scales, block, n, static_cast<T*>(to)};
    return map<1>(op, divided_up(n, kRun), true, stream);
  });
}

}  // namespace tessera::ops::cuda
