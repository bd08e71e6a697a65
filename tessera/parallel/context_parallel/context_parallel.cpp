#include "tessera/parallel/context_parallel/context_parallel.h"

#include <map>
#include <numeric>
#include <utility>
#include <vector>

#include <ATen/ATen.h>

#include "tessera/core/check_argument.h"
#include "tessera/core/ignore_label.h"
#include "tessera/nn/attention.h"
#include "tessera/nn/gated_convolution.h"
#include "tessera/nn/gated_delta_net.h"
#include "tessera/parallel/context_parallel/convolution_exchange.h"
#include "tessera/parallel/context_parallel/delta_exchange.h"
#include "tessera/parallel/context_parallel/ring_attention.h"
#include "tessera/parallel/context_parallel/ulysses.h"
#include "tessera/parallel/context_parallel/usp.h"

namespace tessera::parallel {
namespace {

using Group = std::shared_ptr<comm::Communicator>;

// The ranks as a grid. Neighbours exchange heads for tokens (Ulysses); the ranks with the same place among
// their neighbours form a ring. Either group may be a group of one.
struct Grid {
  Group heads, ring;
};

// Returns how many neighbours exchange heads for tokens. Auto and Usp choose numbers that share the key/value
// heads evenly.
int64_t neighbours_of(ContextParallelMethod method, int64_t num_ranks, int64_t kv_heads) {
  switch (method) {
    case ContextParallelMethod::Ring: return 1;
    case ContextParallelMethod::Ulysses: return num_ranks;
    case ContextParallelMethod::Auto: return kv_heads % num_ranks == 0 ? num_ranks : 1;
    case ContextParallelMethod::Usp: return std::gcd(num_ranks, kv_heads);
  }
  TESSERA_ASSERT(false, "a method of context parallelism");
}

Grid make_grid(const Group& group, int64_t neighbours) {
  const Group alone = comm::Communicator::single(group->device());
  if (neighbours == 1) return {alone, group};
  if (neighbours == group->size()) return {group, alone};
  const int64_t number = group->rank() / neighbours, place = group->rank() % neighbours;
  return {group->split(number, place, "cp_heads", neighbours),
          group->split(place, number, "cp_ring", group->size() / neighbours)};
}

class ContextParallelCore : public nn::AttentionCore {
 public:
  ContextParallelCore(Grid grid, Group group) : grid_(std::move(grid)), group_(std::move(group)) {}

  at::Tensor attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                    const nn::SequenceContext& context, int64_t layer,
                    const ops::AttentionFormula& formula) const override {
    // Each rank continues whole texts.
    if (context.cache != nullptr) return nn::document_attention()->attend(q, k, v, context, layer, formula);
    TESSERA_CHECK_ARGUMENT(context.part.has_value(),
                           "context parallelism: the tokens must be those of token_part()");
    if (q.size(1) == 0) return nn::attention_of_no_heads(q, k, v, formula);
    const TokenSplit split(context.document_starts, group_->size());
    // The copies that token_part() appends attend to nothing: attention runs without them, and their rows are
    // zeros.
    const int64_t own = split.count(group_->rank()), added = q.size(0) - own;
    const auto without = [&](const at::Tensor& rows) { return added == 0 ? rows : rows.narrow(0, 0, own); };
    const at::Tensor seen =
        attend_part(without(q), without(k), without(v), split, context, layer, formula.of_queries(0, own));
    return added == 0 ? seen : at::cat({seen, at::zeros({added, q.size(1), q.size(2)}, seen.options())});
  }

 private:
  at::Tensor attend_part(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                         const TokenSplit& split, const nn::SequenceContext& context, int64_t layer,
                         const ops::AttentionFormula& formula) const {
    if (grid_.heads->size() == 1) return ring_attention(q, k, v, split, formula, group_);
    if (grid_.ring->size() > 1) return usp_attention(q, k, v, split, formula, grid_.heads, grid_.ring);
    nn::SequenceContext whole = context;
    whole.part.reset();
    return ulysses_attention(
        q, k, v, whole_line(split), formula,
        [&](const at::Tensor& qs, const at::Tensor& ks, const at::Tensor& vs,
            const ops::AttentionFormula& of_heads) {
          return nn::document_attention()->attend(qs, ks, vs, whole, layer, of_heads);
        },
        grid_.heads);
  }

  const Grid grid_;
  const Group group_;
};

}  // namespace

void context_parallel(torch::nn::Module& root, ContextParallelMethod method,
                      const std::shared_ptr<comm::Communicator>& group) {
  if (group->size() == 1) return;
  // Cores by the number of neighbours in their grid.
  std::map<int64_t, std::shared_ptr<const nn::AttentionCore>> cores;
  std::shared_ptr<const nn::DeltaCore> delta;
  std::shared_ptr<const nn::ConvolutionCore> convolution;
  for (const auto& module : root.modules(/*include_self=*/false)) {
    if (auto* const mixer = dynamic_cast<nn::GatedDeltaNet*>(module.get())) {
      if (delta == nullptr) delta = context_parallel_delta(group);
      mixer->set_core(delta);
    }
    if (auto* const mixer = dynamic_cast<nn::GatedConvolution*>(module.get())) {
      if (convolution == nullptr) convolution = context_parallel_convolution(group);
      mixer->set_core(convolution);
    }
    auto* const attention = dynamic_cast<nn::Attention*>(module.get());
    if (attention == nullptr) continue;
    const int64_t neighbours = neighbours_of(method, group->size(), attention->cached_heads().num_kv_heads);
    auto& core = cores[neighbours];
    if (core == nullptr) {
      core = std::make_shared<const ContextParallelCore>(make_grid(group, neighbours), group);
    }
    attention->set_core(core);
  }
}

nn::TokenBatch token_part(const nn::TokenBatch& whole, const comm::Communicator& group, int64_t multiple) {
  if (group.size() == 1) return whole;
  nn::TokenBatch part;
  part.document_starts = whole.document_starts;
  const TokenSplit split(whole.document_starts, group.size());
  part.part = split.runs(group.rank());
  const int64_t own = split.count(group.rank());
  const int64_t added = own == 0 && multiple > 1 ? multiple : (multiple - own % multiple) % multiple;
  if (added > 0) part.part->push_back({0, added});
  const auto taken = [&](const at::Tensor& values) {
    std::vector<at::Tensor> runs = {values.narrow(0, 0, 0)};
    for (const nn::TokenRun& run : *part.part) runs.push_back(values.narrow(0, run.first, run.count));
    return at::cat(runs);
  };
  part.input_ids = taken(whole.input_ids);
  part.position_ids = taken(whole.position_ids);
  if (whole.labels.defined()) {
    part.labels = taken(whole.labels);
    part.labels.narrow(0, own, added).fill_(kIgnoreLabel);
  }
  if (whole.type_ids.defined()) part.type_ids = taken(whole.type_ids);
  part.targets = whole.targets;
  if (whole.is_added.defined() || added > 0) {
    part.is_added =
        whole.is_added.defined() ? taken(whole.is_added) : at::zeros_like(part.input_ids, at::kBool);
    part.is_added.narrow(0, own, added).fill_(true);
  }
  if (whole.sources) part.sources = {taken(whole.sources->of_token), whole.sources->losses};
  return part;
}

}  // namespace tessera::parallel
