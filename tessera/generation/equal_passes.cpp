#include "tessera/generation/equal_passes.h"

#include <ATen/ATen.h>

#include "tessera/device/device.h"

namespace tessera::generation {

EqualPasses::EqualPasses(models::CausalLM& model, comm::Communicator& world)
    : model_(model), world_(world), cache_(model.cache_options()) {}

void EqualPasses::catch_up() {
  while (agree(false)) {
    const int64_t sequence = cache_.add();
    model_.next_logits(cache_, {{sequence, {0}}});
    cache_.free(sequence);
  }
}

bool EqualPasses::agree(bool has_pass) {
  if (world_.size() == 1) return false;
  const at::Tensor any = at::full({1}, has_pass ? 1 : 0, on_host(at::kLong));
  comm::ReduceOptions options{.op = comm::ReduceOp::Max};
  options.hint = "passes that generate";
  world_.all_reduce(any, /*async_op=*/false, options);
  return any.item<int64_t>() != 0;
}

}  // namespace tessera::generation
