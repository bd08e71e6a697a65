#include "tessera/train/setup/compute_type.h"

#include <cstdio>

#include <ATen/ATen.h>

#include "tessera/core/log.h"
#include "tessera/device/device.h"
#include "tessera/measure/speed_of_light.h"
#include "tessera/ops/e4m3.h"
#include "tessera/ops/product_units.h"
#include "tessera/train/setup/recipe_values.h"

namespace tessera::train {
namespace {

// The speed of matrix products on this machine, in GFLOP/s.
struct ProductRates {
  double single, half;  // in float32 and bfloat16
  std::string text() const {
    char text[96];
    std::snprintf(text, sizeof text, "matrix products: %.0f GFLOP/s in bfloat16, %.0f in float32", half,
                  single);
    return text;
  }
};

// Measures on rank 0 and returns its rates on all ranks. Collective.
ProductRates product_rates(comm::Communicator& world) {
  const at::TensorOptions options(world.device());
  const at::Tensor rates = at::zeros({2}, on_host(at::kDouble));
  if (world.rank() == 0) {
    rates[0] = measure::gemm_rate(options.dtype(at::kFloat));
    rates[1] = measure::gemm_rate(options.dtype(at::kBFloat16));
  }
  world.broadcast(rates, 0);
  return {rates[0].item<double>(), rates[1].item<double>()};
}

// Says what a type that the recipe asks for costs on this device, where that is not plain. Collective.
void tell_costs(const config::Recipe& recipe, comm::Communicator& world) {
  const bool is_host = world.device().type() == kHost;
  if (recipe.dtype == config::ComputeType::Float16 && is_host) {
    if (ops::product_units<ops::kernels::F16>() == nullptr) {
      log::warn("this processor has no fast float16 products: bf16: true is many times faster here");
    } else {
      log::info(
          "this processor widens float16 to float32 for products: fp16: true saves memory here, not time, "
          "and "
          "bf16: true does the same without a loss scale");
    }
  }
  if (recipe.fp8 && !ops::has_e4m3_units(world.device())) {
    log::warn(is_host ? "fp8 is emulated on the CPU and brings no speedup: bf16: true is faster here"
                      : "this GPU has no fp8 units (they need compute capability 8.9 or later), so fp8 is "
                        "emulated: bf16: true is faster here");
  }
  if (recipe.dtype != config::ComputeType::BFloat16 || !is_host || ops::has_bf16_units()) return;
  if (ops::product_units<ops::kernels::Bf16>() != nullptr) {
    log::info(
        "this processor has no faster units for bfloat16, whose products are as fast as those of float32: "
        "bf16: true "
        "saves memory here, but not time");
    return;
  }
  const ProductRates rates = product_rates(world);
  constexpr double kMuchSlower = 0.7;
  if (rates.half < kMuchSlower * rates.single) {
    log::warn("bfloat16 is slow on this processor (" + rates.text() +
              "): bf16: auto selects the faster of the two");
  }
}

}  // namespace

std::string compute_name(config::ComputeType type) {
  switch (type) {
    case config::ComputeType::Float32: return "float32";
    case config::ComputeType::Float64: return "float64";
    case config::ComputeType::BFloat16: return "bfloat16";
    case config::ComputeType::Float16: return "float16";
    case config::ComputeType::Auto: break;
  }
  return "auto";
}

config::Recipe with_compute_type(config::Recipe recipe, comm::Communicator& world) {
  if (recipe.dtype != config::ComputeType::Auto) {
    const RunTypes types = run_types(recipe);
    log::info("dtype: computing in " + compute_name(recipe.dtype) +
              (recipe.fp8 ? ", the linear layers of the blocks in fp8 (e4m3)" : "") +
              (types.compute != types.stored ? ", weights and sums in float32" : "") +
              (recipe.pure_bf16 ? ", weights too, with stochastic rounding" : ""));
    tell_costs(recipe, world);
    return recipe;
  }
  constexpr double kWorthwhile = 1.5;
  const ProductRates rates = product_rates(world);
  recipe.dtype =
      rates.half >= kWorthwhile * rates.single ? config::ComputeType::BFloat16 : config::ComputeType::Float32;
  log::info("dtype auto: " + compute_name(recipe.dtype) + " (" + rates.text() + ")");
  return recipe;
}

}  // namespace tessera::train
