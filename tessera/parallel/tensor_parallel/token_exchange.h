// Exchanges tokens between tensor parallel ranks while the products of other tokens run (asynchronous tensor
// parallelism: Wang et al., "Overlap Communication with Dependent Computation via Decomposition in Large Deep
// Learning Models", ASPLOS 2023).
#pragma once

#include <memory>
#include <string>

#include "tessera/comm/communicator.h"
#include "tessera/ops/row_exchange.h"

namespace tessera::parallel::detail {

// Returns how many of the tokens of all ranks, [tokens, ...], one rank has. Throws Error(Config,
// "TENSOR-PARALLEL") if they do not divide.
int64_t num_own_tokens(const at::Tensor& tokens, const comm::Communicator& group);

// Each rank sends each other rank its tokens in one message. gather() takes a rank's own tokens first, then
// those of the ranks before it, the nearest first. scatter_sum() makes the tokens of the ranks after it
// first, the nearest first, and its own last. Sums are taken in the order of the ranks, in float32 for 16-bit
// types, so the result does not depend on which message is faster.
class TokenExchange : public ops::RowExchange {
 public:
  // `what` names the tokens in errors.
  TokenExchange(std::shared_ptr<comm::Communicator> group, std::string what);

  std::shared_ptr<ops::IncomingRows> gather(const at::Tensor& own) const override;
  std::shared_ptr<ops::OutgoingRows> scatter_sum(const at::Tensor& whole) const override;

 private:
  const std::shared_ptr<comm::Communicator> group_;
  const std::string what_;
};

}  // namespace tessera::parallel::detail
