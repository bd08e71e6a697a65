#include "tessera/nn/e4m3_layers.h"

#include <set>

#include "tessera/nn/linear.h"
#include "tessera/nn/sparse_mlp.h"

namespace tessera::nn {
namespace {

// `gates`: layers that keep their type, of all modules above.
int64_t multiply_below(torch::nn::Module& root, std::set<const torch::nn::Module*>& gates) {
  if (auto* const layer = dynamic_cast<Linear*>(&root)) {
    // Coded weights are multiplied as they are.
    if (layer->form() || gates.contains(layer)) return 0;
    layer->set_product_type(ops::ProductType::E4m3);
    return 1;
  }
  if (const auto* const sparse = dynamic_cast<const SparseMLP*>(&root))
    gates.insert({sparse->gate.get(), sparse->shared_expert_gate.get()});
  int64_t count = 0;
  for (const auto& child : root.children()) count += multiply_below(*child, gates);
  return count;
}

}  // namespace

int64_t multiply_in_e4m3(torch::nn::Module& root) {
  std::set<const torch::nn::Module*> gates;
  return multiply_below(root, gates);
}

}  // namespace tessera::nn
