#include "tessera/ops/product_units.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <limits>
#include <string_view>

#include <ATen/ATen.h>

#include "tessera/core/error.h"
#include "tessera/ops/kernels/packed_gemm.h"
#include "tessera/ops/support.h"

namespace tessera::ops {
namespace {

enum class Choice { Measured, Own, LibTorch };

Choice wanted() {
  const char* text = std::getenv("TESSERA_PRODUCTS");
  const std::string_view value = text == nullptr ? "" : text;
  if (value.empty()) return Choice::Measured;
  if (value == "own") return Choice::Own;
  if (value == "libtorch") return Choice::LibTorch;
  throw Error(ErrorKind::Config, "PRODUCTS", "TESSERA_PRODUCTS names no way to multiply")
      .got(std::string(value))
      .need("own or libtorch");
}

template <class Run>
double best_seconds(const Run& run) {
  run();
  double best = std::numeric_limits<double>::infinity();
  for (int round = 0; round < 4; ++round) {
    const auto start = std::chrono::steady_clock::now();
    run();
    best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  return best;
}

// On a product like those of a small model's layers.
template <class T>
bool is_libtorch_faster(const kernels::Units<T>& units) {
  constexpr int64_t kRows = 512, kWidth = 576;
  constexpr double kClearly = 1.25;
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  const auto type = c10::CppTypeToScalarType<std::conditional_t<sizeof(T) == 4, float, at::BFloat16>>::value;
  const at::Tensor a = at::ones({kRows, kWidth}, type), b = at::ones({kWidth, kWidth}, type);
  at::Tensor c = at::empty({kRows, kWidth}, type);
  const double own = best_seconds([&] {
    kernels::packed_gemm(units, kRows, kWidth,
                         {{read<T>(a), kWidth, true}, {read<T>(b), kWidth, false}, kWidth}, {}, 0.0f,
                         write<T>(c), kWidth);
  });
  return best_seconds([&] { at::mm_out(c, a, b); }) * kClearly < own;
}

template <class T>
const kernels::Units<T>* choose() {
  const kernels::Units<T>* units = kernels::units<T>();
  const Choice choice = wanted();
  if (units == nullptr || choice == Choice::LibTorch) return nullptr;
  const bool is_known = choice == Choice::Own || units->isa == Isa::Amx;
  return !is_known && is_libtorch_faster(*units) ? nullptr : units;
}

}  // namespace

template <class T>
const kernels::Units<T>* product_units() {
  static const kernels::Units<T>* const chosen = choose<T>();
  return chosen;
}
template const kernels::Units<float>* product_units<float>();
template const kernels::Units<kernels::Bf16>* product_units<kernels::Bf16>();

}  // namespace tessera::ops
