#include "tessera/parallel/context_parallel/context_parallel.h"

#include <vector>

#include <ATen/ATen.h>

#include "tessera/core/check_argument.h"
#include "tessera/core/error.h"
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
    const bool is_even = k.size(1) % group_->size() == 0;
    if (method_ == ContextParallelMethod::Ring || (method_ == ContextParallelMethod::Auto && !is_even)) {
      return ring_attention(q, k, v, split, formula, group_);
    }
    nn::SequenceContext whole = context;
    whole.part.reset();
    return ulysses_attention(q, k, v, split, *nn::document_attention(), whole, layer, formula, group_);
  }

 private:
  ContextParallelMethod method_;
  std::shared_ptr<comm::Communicator> group_;
};

}  // namespace

void context_parallel(torch::nn::Module& root, ContextParallelMethod method,
                      const std::shared_ptr<comm::Communicator>& group) {
  const auto core = std::make_shared<const ContextParallelCore>(method, group);
  for (const auto& module : root.modules(/*include_self=*/false)) {
    if (auto* const attention = dynamic_cast<nn::Attention*>(module.get())) attention->set_core(core);
  }
}

nn::TokenBatch token_part(const nn::TokenBatch& whole, const comm::Communicator& group) {
  if (group.size() == 1) return whole;
  nn::TokenBatch part;
  part.document_starts = whole.document_starts;
  part.part = TokenSplit(whole.document_starts, group.size()).runs(group.rank());
  const auto taken = [&](const at::Tensor& values) {
    std::vector<at::Tensor> runs = {values.narrow(0, 0, 0)};
    for (const nn::TokenRun& run : *part.part) runs.push_back(values.narrow(0, run.first, run.count));
    return at::cat(runs);
  };
  part.input_ids = taken(whole.input_ids);
  if (whole.labels.defined()) part.labels = taken(whole.labels);
  part.position_ids = taken(whole.position_ids);
  if (whole.is_added.defined()) part.is_added = taken(whole.is_added);
  if (whole.sources) part.sources = {taken(whole.sources->of_token), whole.sources->losses};
  return part;
}

}  // namespace tessera::parallel
