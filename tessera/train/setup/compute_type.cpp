#include "tessera/train/setup/compute_type.h"

#include <cstdio>

#include <ATen/ATen.h>

#include "tessera/core/log.h"
#include "tessera/device/device.h"
#include "tessera/measure/speed_of_light.h"
#include "tessera/ops/e4m3.h"
#include "tessera/train/setup/setup.h"

namespace tessera::train {

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
    const RunTypes types = run_types(recipe.dtype);
    log::info("dtype: computing in " + compute_name(recipe.dtype) +
              (recipe.fp8 ? ", the products of the blocks' layers in fp8 (e4m3)" : "") +
              (types.compute != types.stored ? ", weights and sums in float32" : ""));
    if (recipe.dtype == config::ComputeType::Float16 && world.device().type() == kHost) {
      log::warn("float16 has no fast products on this processor: bf16: true is many times faster here");
    }
    if (recipe.fp8 && !ops::has_e4m3_units(world.device())) {
      log::warn(world.device().type() == kHost
                    ? "fp8 gains nothing on the CPU, where its numbers are made by slower steps: bf16: true "
                      "is faster here"
                    : "fp8 gains nothing on this GPU, which has no units for it (compute capability 8.9 and "
                      "later): bf16: true is faster here");
    }
    return recipe;
  }
  constexpr double kWorthwhile = 1.5;
  const at::TensorOptions options(world.device());
  const at::Tensor rates = at::zeros({2}, on_host(at::kDouble));
  if (world.rank() == 0) {
    rates[0] = measure::gemm_rate(options.dtype(at::kFloat));
    rates[1] = measure::gemm_rate(options.dtype(at::kBFloat16));
  }
  world.broadcast(rates, 0);
  const double single = rates[0].item<double>(), half = rates[1].item<double>();
  const bool takes_half = half >= kWorthwhile * single;
  recipe.dtype = takes_half ? config::ComputeType::BFloat16 : config::ComputeType::Float32;
  char text[160];
  std::snprintf(text, sizeof text,
                "dtype auto: %s (matrix products: %.0f GFLOP/s in bfloat16, %.0f in float32)",
                compute_name(recipe.dtype).c_str(), half, single);
  log::info(text);
  return recipe;
}

}  // namespace tessera::train
