#include "tessera/parallel/context_parallel/delta_exchange.h"

#include <utility>

#include <ATen/ATen.h>

#include "tessera/core/check_argument.h"
#include "tessera/parallel/context_parallel/head_exchange.h"

namespace tessera::parallel {
namespace {

class ContextParallelDelta : public nn::DeltaCore {
 public:
  explicit ContextParallelDelta(std::shared_ptr<comm::Communicator> group) : group_(std::move(group)) {}

  at::Tensor read(const ops::DeltaInputs& in, const at::Tensor& taps, const ops::DeltaHead& head,
                  const nn::SequenceContext& context, int64_t layer) const override {
    // Each rank continues whole texts.
    if (context.cache != nullptr) return nn::document_delta()->read(in, taps, head, context, layer);
    TESSERA_CHECK_ARGUMENT(context.part.has_value(),
                           "context parallelism: the tokens must be those of token_part()");
    const TokenSplit split(context.document_starts, group_->size());
    const int64_t heads = in.rows.size(1), width = in.rows.size(2), values = in.log_decay.size(1) / heads,
                  read_width = values * head.value_dim;
    // The copies that token_part() appends read zeros.
    const int64_t own = split.count(group_->rank()), added = in.rows.size(0) - own;
    const auto by_head = [&](const at::Tensor& x) {
      return x.narrow(0, 0, own).unflatten(1, {heads, values});
    };
    const at::Tensor all = at::cat({in.rows.narrow(0, 0, own).to(in.log_decay.scalar_type()),
                                    by_head(in.log_decay), by_head(in.strength)},
                                   2);
    const HeadExchange exchange(whole_line(split), heads, group_, all.device());
    const at::Tensor line =
        exchange
            .to_heads([&](int64_t first, int64_t count) { return all.narrow(1, first, count); },
                      width + 2 * values)
            .view({exchange.num_tokens(), exchange.own_heads(), width + 2 * values});
    const at::Tensor own_taps = taps.narrow(0, exchange.first_head() * width, exchange.own_heads() * width);
    const at::Tensor out = read_line(line, own_taps, in, head, context, layer);
    const at::Tensor tokens = exchange.to_tokens(out.flatten(1), read_width).to(in.rows.scalar_type());
    const at::Tensor seen = tokens.view({own, heads * values, head.value_dim});
    return added == 0 ? seen
                      : at::cat({seen, at::zeros({added, heads * values, head.value_dim}, seen.options())});
  }

 private:
  // `line`: for this rank's heads, their rows, log decays and strengths side by side.
  static at::Tensor read_line(const at::Tensor& line, const at::Tensor& taps, const ops::DeltaInputs& in,
                              const ops::DeltaHead& head, const nn::SequenceContext& context, int64_t layer) {
    const int64_t width = in.rows.size(2), values = in.log_decay.size(1) / in.rows.size(1);
    // A rank without heads keeps its operands in the graph, so that the backward reaches them as elsewhere.
    if (line.size(1) == 0)
      return line.narrow(2, 0, values * head.value_dim) + taps.sum().to(line.scalar_type());
    nn::SequenceContext whole = context;
    whole.part.reset();
    const auto of_values = [&](int64_t first) { return line.narrow(2, first, values).flatten(1); };
    return nn::document_delta()->read(
        {line.narrow(2, 0, width).to(in.rows.scalar_type()), of_values(width), of_values(width + values)},
        taps, head, whole, layer);
  }

  const std::shared_ptr<comm::Communicator> group_;
};

}  // namespace

std::shared_ptr<const nn::DeltaCore> context_parallel_delta(std::shared_ptr<comm::Communicator> group) {
  return std::make_shared<const ContextParallelDelta>(std::move(group));
}

}  // namespace tessera::parallel
