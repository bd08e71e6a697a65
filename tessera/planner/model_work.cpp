#include "tessera/planner/model_work.h"

#include <algorithm>

namespace tessera::planner {

double ModelWork::block_flops() const {
  double flops = state_flops;
  for (const Matrix& matrix : block) flops += 2.0 * matrix.parameters() * matrix.share;
  return flops;
}

double ModelWork::flops_per_token(double sequence) const {
  const auto num_layers = static_cast<double>(layers);
  return 3.0 * (num_layers * (block_flops() + pair_flops * sequence) +
                2.0 * static_cast<double>(vocab) * static_cast<double>(hidden));
}

ModelWork model_work(const ModelShape& shape) {
  ModelWork work;
  work.layers = shape.layers;
  work.hidden = shape.hidden;
  work.heads = shape.heads;
  work.kv_heads = shape.kv_heads;
  work.vocab = shape.vocab;
  work.head_dim = static_cast<double>(shape.head_dim > 0 ? shape.head_dim : shape.hidden / shape.heads);
  work.is_gated = shape.is_gated;
  work.pair_flops = 4.0 * work.query_width();

  const auto hidden = static_cast<double>(shape.hidden), inner = static_cast<double>(shape.inner);
  work.block = {{hidden, work.query_width()},
                {hidden, work.kv_width() / 2, 2.0},
                {work.query_width(), hidden, 1.0, 1.0, /*cuts_input=*/true}};
  const bool is_sparse = shape.experts > 0;
  const auto experts = static_cast<double>(std::max<int64_t>(1, shape.experts));
  const double chosen = is_sparse ? static_cast<double>(shape.experts_per_token) : 1.0;
  const double share = chosen / experts;
  work.block.push_back(
      {hidden, inner, experts * (shape.is_gated ? 2.0 : 1.0), share, false, is_sparse, /*is_into_mlp=*/true});
  work.block.push_back({inner, hidden, experts, share, /*cuts_input=*/true, is_sparse});
  if (is_sparse) work.block.push_back({hidden, experts});
  work.experts_per_token = is_sparse ? chosen : 0.0;
  work.mlp_width = inner * chosen;
  for (const Matrix& matrix : work.block) work.block_parameters += matrix.parameters();
  work.block_parameters += 2.0 * hidden;
  work.embedding_parameters = static_cast<double>(shape.vocab) * hidden;
  work.head_parameters = shape.is_tied ? 0.0 : work.embedding_parameters;
  return work;
}

}  // namespace tessera::planner
