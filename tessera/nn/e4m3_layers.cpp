#include "tessera/nn/e4m3_layers.h"

#include "tessera/nn/linear.h"
#include "tessera/nn/sparse_mlp.h"

namespace tessera::nn {

int64_t multiply_in_e4m3(torch::nn::Module& root) {
  if (auto* const layer = dynamic_cast<Linear*>(&root)) {
    if (layer->form()) return 0;  // coded weights are multiplied as they are
    layer->set_product_type(ops::ProductType::E4m3);
    return 1;
  }
  const auto* const sparse = dynamic_cast<const SparseMLP*>(&root);
  int64_t count = 0;
  for (const auto& child : root.children()) {
    const bool is_gate = sparse != nullptr && (child == sparse->gate || child == sparse->shared_expert_gate);
    if (!is_gate) count += multiply_in_e4m3(*child);
  }
  return count;
}

}  // namespace tessera::nn
