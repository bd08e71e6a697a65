// Masks and noise whose numbers do not depend on how a tensor is split.
#include <cstring>

#include "tessera/ops/cuda/entries.cuh"
#include "tessera/ops/cuda/launch.cuh"
#include "tessera/ops/cuda/philox.cuh"

namespace tessera::ops::cuda {
namespace {

constexpr int kRun = 8;  // elements of a row that a thread makes

template <class T>
struct Mask {
  uint32_t threshold;
  T kept, zero;
  __device__ T operator()(uint32_t word) const { return word < threshold ? zero : kept; }
};

// Makes a value of noise, exact in float64 and rounded once, as on the host; bf16 is rounded from float32
// there and here.
template <class T>
struct Noise {
  __device__ T operator()(uint32_t word) const {
    const double value = (static_cast<double>(word) + 0.5) * 0x1.0p-31 - 1.0;
    T to;
    if constexpr (std::is_same_v<T, double>) {
      to = value;
    } else {
      narrow(static_cast<float>(value), to);
    }
    return to;
  }
};

// Item i of map() is at most kRun elements of a row.
template <class T, class Convert>
struct Draw {
  RandomKey key;
  RandomElements elements;
  Convert convert;
  T* out;

  template <int>
  __device__ void run(int64_t item) const {
    const int64_t in_row = (elements.width + kRun - 1) / kRun, row = item / in_row;
    const int64_t column = (item - row * in_row) * kRun, left = elements.width - column;
    const uint64_t begin = elements.row_numbers != nullptr
                               ? static_cast<uint64_t>(elements.row_numbers[row])
                               : elements.first + static_cast<uint64_t>(row) * elements.row_stride;
    const uint64_t first = begin + static_cast<uint64_t>(column);
    T* to = out + row * elements.width + column;
    const int count = left < kRun ? static_cast<int>(left) : kRun, skip = static_cast<int>(first % 4);
    if (skip == 0 && count == kRun && reinterpret_cast<uintptr_t>(to) % 16 == 0) {
      union {
        T values[kRun];
        uint4 words[kRun * sizeof(T) / 16];
      } made;
#pragma unroll
      for (int block = 0; block < 2; ++block) {
        const Words words = philox(key, first / 4 + static_cast<uint64_t>(block));
#pragma unroll
        for (int i = 0; i < 4; ++i) made.values[4 * block + i] = convert(words.w[i]);
      }
#pragma unroll
      for (int i = 0; i < static_cast<int>(sizeof made / 16); ++i)
        __stwb(reinterpret_cast<uint4*>(to) + i, made.words[i]);
      return;
    }
    // The elements take two counters, or three if the first one is cut.
#pragma unroll
    for (int block = 0; block < 3; ++block) {
      if (4 * block - skip >= count) break;
      const Words words = philox(key, first / 4 + static_cast<uint64_t>(block));
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int at = 4 * block + i - skip;
        if (at >= 0 && at < count) to[at] = convert(words.w[i]);
      }
    }
  }
};

template <class T, class Convert>
int32_t draw(const RandomKey& key, const RandomElements& elements, const Convert& convert, void* out,
             void* stream) {
  const Draw<T, Convert> op = {key, elements, convert, static_cast<T*>(out)};
  return map<1>(op, elements.rows * divided_up(elements.width, kRun), true, stream);
}

// Calls run(T()) for F32, BF16 and F64.
template <class Run>
int32_t dispatch_drawn(Type type, const Run& run) {
  return type == Type::F64 ? run(double()) : dispatch(type, run);
}

// Converts a value as the host rounds it.
inline void round_on_host(double x, double& to) { to = x; }
inline void round_on_host(double x, float& to) { to = static_cast<float>(x); }
inline void round_on_host(double x, Bf16& to) {
  const float rounded = static_cast<float>(x);
  uint32_t bits;
  std::memcpy(&bits, &rounded, sizeof bits);
  to.bits = static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

}  // namespace

int32_t dropout_mask(Type type, double p, const RandomKey* key, const RandomElements* elements, void* out,
                     void* stream) {
  return dispatch_drawn(type, [&](auto tag) {
    using T = decltype(tag);
    Mask<T> mask = {static_cast<uint32_t>(p * 0x1.0p32), T{}, T{}};
    round_on_host(1 / (1 - p), mask.kept);
    return draw<T>(*key, *elements, mask, out, stream);
  });
}

int32_t uniform_noise(Type type, const RandomKey* key, const RandomElements* elements, void* out,
                      void* stream) {
  return dispatch_drawn(type, [&](auto tag) {
    using T = decltype(tag);
    return draw<T>(*key, *elements, Noise<T>(), out, stream);
  });
}

}  // namespace tessera::ops::cuda
