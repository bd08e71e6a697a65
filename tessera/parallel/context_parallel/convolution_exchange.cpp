#include "tessera/parallel/context_parallel/convolution_exchange.h"

#include <utility>

#include <ATen/ATen.h>

#include "tessera/core/check_argument.h"
#include "tessera/ops/causal_convolution.h"
#include "tessera/parallel/context_parallel/head_exchange.h"

namespace tessera::parallel {
namespace {

class ContextParallelConvolution : public nn::ConvolutionCore {
 public:
  explicit ContextParallelConvolution(std::shared_ptr<comm::Communicator> group) : group_(std::move(group)) {}

  at::Tensor convolve(const at::Tensor& rows, const at::Tensor& taps, const nn::SequenceContext& context,
                      int64_t layer) const override {
    // Each rank continues whole texts.
    if (context.cache != nullptr) return nn::document_convolution()->convolve(rows, taps, context, layer);
    TESSERA_CHECK_ARGUMENT(context.part.has_value(),
                           "context parallelism: the tokens must be those of token_part()");
    const TokenSplit split(context.document_starts, group_->size());
    // The copies that token_part() appends read zeros.
    const int64_t own = split.count(group_->rank()), added = rows.size(0) - own;
    const HeadExchange exchange(whole_line(split), rows.size(1), group_, rows.device());
    const at::Tensor line = exchange.to_heads(
        [&](int64_t first, int64_t count) { return rows.narrow(0, 0, own).narrow(1, first, count); }, 1);
    const at::Tensor seen =
        exchange.to_tokens(convolve_line(line, taps, exchange, context.document_starts), 1);
    return added == 0 ? seen : at::cat({seen, at::zeros({added, rows.size(1)}, seen.options())});
  }

 private:
  // `line`: this rank's channels of all tokens.
  static at::Tensor convolve_line(const at::Tensor& line, const at::Tensor& taps,
                                  const HeadExchange& exchange, const std::vector<int64_t>& starts) {
    // A rank without channels keeps its operands in the graph, so that the backward reaches them as
    // elsewhere.
    if (exchange.own_heads() == 0) return line + taps.sum().to(line.scalar_type());
    const at::Tensor own = taps.narrow(0, exchange.first_head(), exchange.own_heads());
    return ops::causal_convolution(line, own, starts, /*has_silu=*/false);
  }

  const std::shared_ptr<comm::Communicator> group_;
};

}  // namespace

std::shared_ptr<const nn::ConvolutionCore> context_parallel_convolution(
    std::shared_ptr<comm::Communicator> group) {
  return std::make_shared<const ContextParallelConvolution>(std::move(group));
}

}  // namespace tessera::parallel
