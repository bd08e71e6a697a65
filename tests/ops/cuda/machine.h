// The machine on which tests of the CUDA kernels run: the emulation, or a device. Each program of these
// tests has one.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tessera/core/float_cast.h"
#include "tessera/core/rng.h"
#include "tessera/ops/cuda/kernels.h"

namespace tessera::ops::cuda {

class Machine {
 public:
  virtual ~Machine() = default;
  virtual const CudaKernels& kernels() const = 0;
  // Returns memory of exactly this many bytes, aligned to 256.
  virtual std::shared_ptr<char> allocate(size_t bytes) const = 0;
  virtual void write(void* to, const void* from, size_t bytes) const = 0;
  // Copies bytes to the host, after waiting for all work that was enqueued.
  virtual void read(void* to, const void* from, size_t bytes) const = 0;
};

// Returns the program's machine; null if there is none, and tests are then skipped.
const Machine* machine();
// Returns the reason, one of testing::skip, if there is no machine.
const char* why_no_machine();
// Runs `body` with so few blocks a launch that loops over a grid take several rounds, if the machine can do
// that.
void with_small_grids(const std::function<void()>& body);

class KernelTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (machine() == nullptr) GTEST_SKIP() << why_no_machine();
  }
  static const CudaKernels& kernels() { return machine()->kernels(); }
};

// The bits of a value of a 16-bit type.
struct Bf16Bits {
  uint16_t bits;
};
struct HalfBits {
  uint16_t bits;
};

inline double value_of(float x) { return x; }
inline double value_of(double x) { return x; }
inline double value_of(int64_t x) { return static_cast<double>(x); }
inline double value_of(Bf16Bits x) {
  const uint32_t bits = static_cast<uint32_t>(x.bits) << 16;
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}
inline double value_of(HalfBits x) {
  const int exponent = x.bits >> 10 & 31, fraction = x.bits & 1023;
  const double magnitude = exponent == 31  ? (fraction == 0 ? INFINITY : NAN)
                           : exponent == 0 ? std::ldexp(fraction, -24)
                                           : std::ldexp(1024 + fraction, exponent - 25);
  return (x.bits & 0x8000) != 0 ? -magnitude : magnitude;
}
inline void set_value(double value, float& to) { to = static_cast<float>(value); }
inline void set_value(double value, double& to) { to = value; }
inline void set_value(double value, Bf16Bits& to) { to.bits = float_to_bfloat16(static_cast<float>(value)); }
inline void set_value(double value, HalfBits& to) { to.bits = float_to_half(static_cast<float>(value)); }

template <class T>
constexpr Type type_of() {
  if constexpr (std::is_same_v<T, float>) return Type::F32;
  if constexpr (std::is_same_v<T, double>) return Type::F64;
  if constexpr (std::is_same_v<T, Bf16Bits>) return Type::BF16;
  if constexpr (std::is_same_v<T, HalfBits>) return Type::F16;
}

// n elements on the machine. They begin `offset` elements behind an aligned address, and the memory ends
// with them.
template <class T>
class Array {
 public:
  explicit Array(int64_t n, int64_t offset = 0)
      : memory_(machine()->allocate(static_cast<size_t>(n + offset) * sizeof(T))), n_(n), offset_(offset) {}
  explicit Array(const std::vector<T>& values, int64_t offset = 0)
      : Array(static_cast<int64_t>(values.size()), offset) {
    machine()->write(data(), values.data(), values.size() * sizeof(T));
  }

  T* data() const { return reinterpret_cast<T*>(memory_.get()) + offset_; }
  std::vector<T> values() const {
    std::vector<T> values(static_cast<size_t>(n_));
    machine()->read(values.data(), data(), values.size() * sizeof(T));
    return values;
  }

 private:
  std::shared_ptr<char> memory_;
  int64_t n_, offset_;
};

// Makes a workspace of this many bytes.
inline Array<double> workspace(int64_t bytes) { return Array<double>((bytes + 7) / 8); }

// Returns normal numbers times `scale`, plus `shift`, rounded to T.
template <class T>
std::vector<T> random_values(int64_t n, uint64_t stream, double scale = 1.0, double shift = 0.0) {
  const CounterRng rng(20261123, stream);
  std::vector<T> values(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) {
    set_value(shift + scale * rng.normal(static_cast<uint64_t>(i)), values[static_cast<size_t>(i)]);
  }
  return values;
}

template <class T>
std::vector<double> doubles(const std::vector<T>& values) {
  std::vector<double> wide;
  for (const T& value : values) wide.push_back(value_of(value));
  return wide;
}

// Returns the error that a float32 computation, and the rounding of its result to T, may have, relative to
// the value or to 1.
template <class T>
constexpr double tolerance_of() {
  return sizeof(T) >= 4 ? 1e-5 : std::is_same_v<T, HalfBits> ? 1e-3 : 8e-3;
}

template <class T>
void expect_near(const std::vector<T>& got, const std::vector<double>& want, const std::string& what,
                 double tolerance = tolerance_of<T>()) {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (size_t i = 0; i < got.size(); ++i) {
    const double value = value_of(got[i]);
    const bool is_same = (std::isnan(value) && std::isnan(want[i])) || value == want[i] ||
                         std::abs(value - want[i]) <= tolerance * std::max(1.0, std::abs(want[i]));
    ASSERT_TRUE(is_same) << what << ", element " << i << " of " << got.size() << ": got " << value
                         << ", need " << want[i];
  }
}

template <class T>
void expect_same_bits(const std::vector<T>& got, const std::vector<T>& want, const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_EQ(std::memcmp(&got[i], &want[i], sizeof(T)), 0)
        << what << ", element " << i << ": got " << value_of(got[i]) << ", need " << value_of(want[i]);
  }
}

// Calls body(T()) for float and bf16.
template <class Body>
void for_types(const Body& body) {
  {
    SCOPED_TRACE("float32");
    body(float());
  }
  SCOPED_TRACE("bfloat16");
  body(Bf16Bits());
}

// Returns lengths just below, at and above those of vectors, warps and blocks.
inline const std::vector<int64_t>& edge_lengths() {
  static const std::vector<int64_t> lengths = {0, 1, 3, 7, 8, 9, 31, 32, 33, 255, 1023, 1024, 1025, 4099};
  return lengths;
}

}  // namespace tessera::ops::cuda
