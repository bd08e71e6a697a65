#include "tessera/parallel/context_parallel/context_parallel.h"

#include <vector>

#include <ATen/ATen.h>

#include "tessera/core/check_argument.h"
#include "tessera/core/error.h"
#include "tessera/core/ignore_label.h"
#include "tessera/nn/attention.h"
#include "tessera/parallel/context_parallel/ring_attention.h"
#include "tessera/parallel/context_parallel/ulysses.h"

namespace tessera::parallel {
namespace {

class ContextParallelCore : public nn::AttentionCore {
 public:
  ContextParallelCore(ContextParallelMethod method, std::shared_ptr<comm::Communicator> group)
      : method_(method), group_(std::move(group)) {}

  at::Tensor attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                    const nn::SequenceContext& context, int64_t layer,
                    const ops::AttentionFormula& formula) const override {
    if (context.cache != nullptr) {
      throw Error(ErrorKind::Config, "CONTEXT-PARALLEL",
                  "a cache of keys and values is not spread over context parallel ranks")
          .hint("generate without context parallelism");
    }
    TESSERA_CHECK_ARGUMENT(context.part.has_value(),
                           "context parallelism: the tokens must be those of token_part()");
    // As in nn::document_attention().
    if (q.size(1) == 0) return q + k + v;
    const TokenSplit split(context.document_starts, group_->size());
    // The copies that token_part() adds see nothing.
    const int64_t own = split.count(group_->rank()), added = q.size(0) - own;
    const auto without = [&](const at::Tensor& rows) { return added == 0 ? rows : rows.narrow(0, 0, own); };
    const at::Tensor seen = attend_part(without(q), without(k), without(v), split, context, layer, formula);
    return added == 0 ? seen : at::cat({seen, at::zeros({added, q.size(1), q.size(2)}, seen.options())});
  }

 private:
  at::Tensor attend_part(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                         const TokenSplit& split, const nn::SequenceContext& context, int64_t layer,
                         const ops::AttentionFormula& formula) const {
    const bool is_even = k.size(1) % group_->size() == 0;
    if (method_ == ContextParallelMethod::Ring || (method_ == ContextParallelMethod::Auto && !is_even)) {
      return ring_attention(q, k, v, split, formula, group_);
    }
    nn::SequenceContext whole = context;
    whole.part.reset();
    return ulysses_attention(q, k, v, split, *nn::document_attention(), whole, layer, formula, group_);
  }

  ContextParallelMethod method_;
  std::shared_ptr<comm::Communicator> group_;
};

}  // namespace

void context_parallel(torch::nn::Module& root, ContextParallelMethod method,
                      const std::shared_ptr<comm::Communicator>& group) {
  if (group->size() == 1) return;
  const auto core = std::make_shared<const ContextParallelCore>(method, group);
  for (const auto& module : root.modules(/*include_self=*/false)) {
    if (auto* const attention = dynamic_cast<nn::Attention*>(module.get())) attention->set_core(core);
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
  if (whole.is_added.defined() || added > 0) {
    part.is_added =
        whole.is_added.defined() ? taken(whole.is_added) : at::zeros_like(part.input_ids, at::kBool);
    part.is_added.narrow(0, own, added).fill_(true);
  }
  if (whole.sources) part.sources = {taken(whole.sources->of_token), whole.sources->losses};
  return part;
}

}  // namespace tessera::parallel
