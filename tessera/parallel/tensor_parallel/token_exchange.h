// Tokens that travel between tensor parallel ranks while products of others run (asynchronous tensor
// parallelism: Wang et al., "Overlap Communication with Dependent Computation via Decomposition in Large Deep
// Learning Models", ASPLOS 2023).
#pragma once

#include <memory>
#include <string>

#include "tessera/comm/communicator.h"
#include "tessera/ops/row_exchange.h"

namespace tessera::parallel::detail {

// Of the tokens of all ranks, [tokens, ...], how many one has. Throws Error(Config, "TENSOR-PARALLEL") where
// they do not divide.
int64_t num_own_tokens(const at::Tensor& tokens, const comm::Communicator& group);

// Each rank sends each other one its tokens in a message. gather() takes a rank's own tokens first, then
// those of the ranks before it; scatter_sum() makes those of the ranks after it first, and its own last. Sums
// are taken in the order of the ranks, so nothing depends on which message is faster; of 16-bit types in
// float32.
class TokenExchange : public ops::RowExchange {
 public:
  // `what`: for messages.
  TokenExchange(std::shared_ptr<comm::Communicator> group, std::string what);

  std::shared_ptr<ops::IncomingRows> gather(const at::Tensor& own) const override;
  std::shared_ptr<ops::OutgoingRows> scatter_sum(const at::Tensor& whole) const override;

 private:
  const std::shared_ptr<comm::Communicator> group_;
  const std::string what_;
};

}  // namespace tessera::parallel::detail
