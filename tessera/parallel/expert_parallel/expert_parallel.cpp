#include "tessera/parallel/expert_parallel/expert_parallel.h"

#include <memory>
#include <string>

#include "tessera/core/error.h"
#include "tessera/core/nearest_size.h"
#include "tessera/nn/sparse_mlp.h"
#include "tessera/parallel/expert_parallel/expert_dispatch.h"
#include "tessera/parallel/layout.h"

namespace tessera::parallel {

void check_expert_parallel(const torch::nn::Module& root, int64_t num_ranks) {
  bool has_experts = false;
  for (const auto& module : root.modules(/*include_self=*/false)) {
    const auto* const mlp = dynamic_cast<const nn::SparseMLP*>(module.get());
    if (mlp == nullptr) continue;
    has_experts = true;
    const int64_t experts = std::ssize(mlp->experts);
    if (experts >= num_ranks) continue;
    throw Error(ErrorKind::Config, "EXPERT-PARALLEL",
                "experts cannot be divided over " + std::to_string(num_ranks) + " ranks")
        .got(std::to_string(experts) + " experts in a layer")
        .need("at least one expert for each rank")
        // Only divisors of num_ranks are proposed, since they also divide the ranks that num_ranks was taken
        // from.
        .hint(
            nearest_size_hint("expert_parallel_size", nearest_sizes(num_ranks, num_ranks, [&](int64_t size) {
                                return size <= experts && num_ranks % size == 0;
                              })));
  }
  if (has_experts || num_ranks == 1) return;
  throw Error(ErrorKind::Config, "EXPERT-PARALLEL", "the model has no experts to divide over ranks")
      .got("expert_parallel_size " + std::to_string(num_ranks))
      .need("1");
}

void expert_parallel(torch::nn::Module& root, const RankAxis& axis, const ShardGroups& groups,
                     ParameterLayouts& layouts) {
  const int64_t ranks = axis.group->size();
  check_expert_parallel(root, ranks);
  const auto core = std::make_shared<ExpertDispatch>(axis.group);
  for (const auto& module : root.modules(/*include_self=*/false)) {
    auto* const mlp = dynamic_cast<nn::SparseMLP*>(module.get());
    if (mlp == nullptr) continue;
    for (int64_t rank = 0; rank < ranks; ++rank) {
      const auto [first, count] = piece_of(std::ssize(mlp->experts), ranks, rank);
      for (int64_t e = first; e < first + count; ++e) {
        for (const at::Tensor& parameter : mlp->experts[static_cast<size_t>(e)]->parameters()) {
          layouts.set_apart(parameter, axis, {rank}, groups);
        }
      }
    }
    mlp->set_core(core);
  }
}

}  // namespace tessera::parallel
