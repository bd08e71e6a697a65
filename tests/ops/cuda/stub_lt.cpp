// A library with cuBLASLt's functions that multiplies matrices of the host. It reads descriptors as
// cuBLASLt's documentation says, column by column, and refuses the fp8 products that cuBLASLt refuses.
#include "tests/ops/cuda/stub_lt.h"

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "tessera/ops/cuda/lt_library.h"

using namespace tessera::ops::cuda::lt;

namespace tessera::ops::cuda::lt {

struct LtContext {};
struct LtMatmulDesc {
  ComputeType compute;
  DataType scale_type;
  int32_t trans_a = kNotTransposed, trans_b = kNotTransposed;
  const float *scale_a = nullptr, *scale_b = nullptr;
  int8_t fast_sums = 0;
};
struct LtMatrixLayout {
  DataType type;
  int64_t rows, columns, stride;
};
struct LtMatmulPreference {
  uint64_t workspace = 0;
  uint32_t schemes = 7, alignment[4] = {256, 256, 256, 256};
};

}  // namespace tessera::ops::cuda::lt

namespace {

constexpr uint64_t kWorkspace = 4096;
constexpr int64_t kAlignment = 16;

tessera::testing::StubLt& state() {
  static tessera::testing::StubLt instance{};
  return instance;
}

Status fault() {
  ++state().faults;
  return kInvalidValue;
}

template <class T, class... Values>
Status make(T** made, Values... values) {
  *made = new T{values...};
  ++state().live;
  return kSuccess;
}
template <class T>
Status destroy(T* made) {
  delete made;
  --state().live;
  return kSuccess;
}

template <class T>
Status read(T& to, const void* value, size_t bytes) {
  if (bytes != sizeof to) return fault();
  std::memcpy(&to, value, sizeof to);
  return kSuccess;
}

int64_t width(DataType type) { return type == kF32 ? 4 : type == kBF16 ? 2 : 1; }

float of_e4m3(uint8_t code) {
  const int exponent = code >> 3 & 15, fraction = code & 7;
  const float size = exponent == 15 && fraction == 7 ? std::numeric_limits<float>::quiet_NaN()
                     : exponent == 0                 ? std::ldexp(static_cast<float>(fraction), -9)
                                     : std::ldexp(static_cast<float>(8 + fraction), exponent - 10);
  return code & 128 ? -size : size;
}

float of_bf16(uint16_t bits) {
  const uint32_t wide = uint32_t{bits} << 16;
  float value = 0;
  std::memcpy(&value, &wide, sizeof value);
  return value;
}
// Rounds a finite number to bfloat16, to nearest, ties to even.
uint16_t to_bf16(float value) {
  uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

// Tells whether the descriptors make a product: sizes fit, and strides reach over the rows.
bool fits(const LtMatmulDesc& of, const LtMatrixLayout& a, const LtMatrixLayout& b, const LtMatrixLayout& d) {
  const bool turns_a = of.trans_a == kTransposed, turns_b = of.trans_b == kTransposed;
  const int64_t rows = turns_a ? a.columns : a.rows, depth = turns_a ? a.rows : a.columns;
  const int64_t depth_b = turns_b ? b.columns : b.rows, columns = turns_b ? b.rows : b.columns;
  return rows == d.rows && columns == d.columns && depth == depth_b && a.stride >= a.rows &&
         b.stride >= b.rows && d.stride >= d.rows;
}

bool is_made_in_fp8(const LtMatmulDesc& of, const LtMatrixLayout& a, const LtMatrixLayout& b,
                    const LtMatrixLayout& d) {
  const auto is_aligned = [](const LtMatrixLayout& x) {
    return x.rows * width(x.type) % kAlignment == 0 && x.stride * width(x.type) % kAlignment == 0;
  };
  return of.compute == kCompute32F && of.scale_type == kF32 && a.type == kE4M3 && b.type == kE4M3 &&
         (d.type == kF32 || d.type == kBF16) && of.trans_a == kTransposed && of.trans_b == kNotTransposed &&
         is_aligned(a) && is_aligned(b) && is_aligned(d);
}

bool is_at(const void* place, uint64_t alignment) {
  return reinterpret_cast<uintptr_t>(place) % alignment == 0;
}

}  // namespace

extern "C" {

tessera::testing::StubLt& stub_lt() { return state(); }

size_t cublasLtGetVersion() { return TESSERA_STUB_VERSION; }
const char* cublasLtGetStatusString(Status status) {
  return status == kNotSupported ? "not supported" : "something else";
}
Status cublasLtCreate(Handle* made) {
  static LtContext context;
  ++state().handles;
  *made = &context;
  return kSuccess;
}
Status cublasLtMatmulDescCreate(Desc* made, ComputeType compute, DataType scale) {
  return make(made, compute, scale);
}
Status cublasLtMatmulDescDestroy(Desc made) { return destroy(made); }
Status cublasLtMatmulDescSetAttribute(Desc of, DescAttribute attribute, const void* value, size_t bytes) {
  switch (attribute) {
    case kTransA: return read(of->trans_a, value, bytes);
    case kTransB: return read(of->trans_b, value, bytes);
    case kScaleOfA: return read(of->scale_a, value, bytes);
    case kScaleOfB: return read(of->scale_b, value, bytes);
    case kFastSums: return read(of->fast_sums, value, bytes);
  }
  return fault();
}
Status cublasLtMatrixLayoutCreate(Layout* made, DataType type, uint64_t rows, uint64_t columns, int64_t ld) {
  return make(made, type, static_cast<int64_t>(rows), static_cast<int64_t>(columns), ld);
}
Status cublasLtMatrixLayoutDestroy(Layout made) { return destroy(made); }
Status cublasLtMatmulPreferenceCreate(Preference* made) { return make(made); }
Status cublasLtMatmulPreferenceDestroy(Preference made) { return destroy(made); }
Status cublasLtMatmulPreferenceSetAttribute(Preference of, PreferenceAttribute attribute, const void* value,
                                            size_t bytes) {
  switch (attribute) {
    case kWorkspaceBytes: return read(of->workspace, value, bytes);
    case kReductionSchemes: return read(of->schemes, value, bytes);
    case kAlignmentOfA: return read(of->alignment[0], value, bytes);
    case kAlignmentOfB: return read(of->alignment[1], value, bytes);
    case kAlignmentOfC: return read(of->alignment[2], value, bytes);
    case kAlignmentOfD: return read(of->alignment[3], value, bytes);
  }
  return fault();
}

// The algorithm that is found notes the sizes that it is for, and the alignments that it relies on.
Status cublasLtMatmulAlgoGetHeuristic(Handle handle, Desc of, Layout a, Layout b, Layout c, Layout d,
                                      Preference wanted, int most, Heuristic* found, int* num_found) {
  ++state().queries;
  *num_found = 0;
  if (handle == nullptr || most < 1 || c != d || !fits(*of, *a, *b, *d)) return fault();
  // It is a fault to allow sums whose order may change, or that are rounded on their way.
  if (wanted->schemes != kInComputeType || of->fast_sums != 0) return fault();
  if (const int status = state().query_status; status != 0) return static_cast<Status>(status);
  if (!is_made_in_fp8(*of, *a, *b, *d) || wanted->workspace < kWorkspace) return kNotSupported;
  for (const uint32_t alignment : wanted->alignment)
    if (alignment < kAlignment) return kNotSupported;
  const auto number = [](int64_t x) { return static_cast<uint64_t>(x); };
  *found = {{{number(d->rows), number(d->columns), number(a->rows), number(d->type), wanted->alignment[0],
              wanted->alignment[1], wanted->alignment[2], wanted->alignment[3]}},
            kWorkspace,
            kSuccess,
            1.0f,
            {}};
  *num_found = 1;
  return kSuccess;
}

Status cublasLtMatmul(Handle, Desc of, const void* alpha, const void* a, Layout of_a, const void* b,
                      Layout of_b, const void* beta, const void* c, Layout of_c, void* d, Layout of_d,
                      const Algorithm* by, void* workspace, size_t workspace_bytes, void*) {
  const uint64_t* const with = by->data;
  const bool is_for_this =
      with[0] == static_cast<uint64_t>(of_d->rows) && with[1] == static_cast<uint64_t>(of_d->columns) &&
      with[2] == static_cast<uint64_t>(of_a->rows) && with[3] == static_cast<uint64_t>(of_d->type) &&
      is_at(a, with[4]) && is_at(b, with[5]) && is_at(c, with[6]) && is_at(d, with[7]);
  if (!is_for_this || c != d || of_c != of_d || workspace_bytes < kWorkspace || !is_at(workspace, 16))
    return fault();
  if (const int status = state().product_status; status != 0) return static_cast<Status>(status);
  ++state().products;
  std::memset(workspace, 0xff, workspace_bytes);
  const double times = *static_cast<const float*>(alpha), kept = *static_cast<const float*>(beta);
  const double scale = double{*of->scale_a} * *of->scale_b;
  const auto* const codes_a = static_cast<const uint8_t*>(a);
  const auto* const codes_b = static_cast<const uint8_t*>(b);
  for (int64_t column = 0; column < of_d->columns; ++column) {
    for (int64_t row = 0; row < of_d->rows; ++row) {
      double total = 0;  // the element of a^T b
      for (int64_t i = 0; i < of_a->rows; ++i) {
        total +=
            double{of_e4m3(codes_a[i + row * of_a->stride])} * of_e4m3(codes_b[i + column * of_b->stride]);
      }
      const int64_t place = row + column * of_d->stride;
      if (of_d->type == kF32) {
        float& value = static_cast<float*>(d)[place];
        value = static_cast<float>(times * scale * total + kept * value);
      } else {
        uint16_t& value = static_cast<uint16_t*>(d)[place];
        value = to_bf16(static_cast<float>(times * scale * total + kept * of_bf16(value)));
      }
    }
  }
  return kSuccess;
}

}  // extern "C"
