#include "tessera/nn/e4m3_layers.h"

#include <set>

#include "tessera/nn/linear.h"
#include "tessera/nn/sparse_mlp.h"

namespace tessera::nn {

int64_t multiply_in_e4m3(torch::nn::Module& root) {
  std::set<const torch::nn::Module*> gates;
  for (const auto& module : root.modules()) {
    const auto* const sparse = dynamic_cast<const SparseMLP*>(module.get());
    if (sparse != nullptr) gates.insert({sparse->gate.get(), sparse->shared_expert_gate.get()});
  }
  int64_t count = 0;
  for (const auto& module : root.modules()) {
    auto* const layer = dynamic_cast<Linear*>(module.get());
    // Coded weights are multiplied as they are.
    if (layer == nullptr || layer->form() || gates.contains(layer)) continue;
    layer->set_product_type(ops::ProductType::E4m3);
    ++count;
  }
  return count;
}

}  // namespace tessera::nn
