#include "tessera/models/common/initialise.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "tessera/core/error.h"
#include "tessera/core/rng.h"
#include "tessera/nn/materialize.h"
#include "tessera/peft/lora.h"

namespace tessera::models {
namespace {

constexpr int64_t kGrain = 4096;

void fill_normal(const at::Tensor& tile, const std::string& name, int64_t first_row,
                 const InitialOptions& o) {
  const int64_t row_elements = tile.size(0) == 0 ? 0 : tile.numel() / tile.size(0);
  const uint64_t first = static_cast<uint64_t>(first_row * row_elements);
  const CounterRng rng(o.seed, stream_of(name.c_str()));
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kBFloat16, at::kHalf, tile.scalar_type(), "fill_normal", [&] {
    scalar_t* out = tile.data_ptr<scalar_t>();
    at::parallel_for(0, tile.numel(), kGrain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        out[i] = static_cast<scalar_t>(o.standard_deviation * rng.normal(first + static_cast<uint64_t>(i)));
      }
    });
  });
}

void initialise(CausalLM& model, uint64_t seed, bool adapters_only) {
  const InitialOptions options{seed, model.config().initializer_range};
  for (auto& item : model.named_parameters()) {
    if (adapters_only && !peft::is_lora_parameter(item.key())) continue;
    at::Tensor& parameter = item.value();
    const at::Tensor value = at::empty(parameter.sizes(), at::TensorOptions().dtype(parameter.scalar_type()));
    fill_initial(value, item.key(), 0, options);
    nn::materialize(parameter, value);
  }
}

}  // namespace

void fill_initial(at::Tensor tile, const std::string& name, int64_t first_row,
                  const InitialOptions& options) {
  TESSERA_ASSERT(tile.is_contiguous() && tile.device().is_cpu() && tile.dim() >= 1, "tile of fill_initial");
  at::NoGradGuard no_grad;
  if (peft::is_lora_parameter(name)) {
    peft::fill_initial_lora(tile, name, first_row, options.seed);
  } else if (name.ends_with(".bias")) {
    tile.zero_();
  } else if (tile.dim() == 1) {
    tile.fill_(1.0);
  } else {
    fill_normal(tile, name, first_row, options);
  }
}

void initialise_weights(CausalLM& model, uint64_t seed) { initialise(model, seed, false); }

void initialise_adapters(CausalLM& model, uint64_t seed) { initialise(model, seed, true); }

}  // namespace tessera::models
