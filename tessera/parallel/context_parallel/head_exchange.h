// Exchanges heads for tokens: each rank of a group has some tokens of all heads, or all tokens of some heads.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include "tessera/comm/communicator.h"
#include "tessera/nn/sequence.h"
#include "tessera/parallel/context_parallel/token_split.h"

namespace tessera::parallel {

// The tokens that the ranks of a group share.
struct SharedTokens {
  // By rank: its runs of the line, in the order in which it holds them.
  std::vector<std::vector<nn::TokenRun>> of_rank;
  // The tokens of all ranks, in the order in which they are wanted.
  std::vector<nn::TokenRun> line;
};

// Returns all tokens of a micro-batch, in the order of its line.
SharedTokens whole_line(const TokenSplit& split);

// The exchange that DeepSpeed-Ulysses makes around attention (Jacobs et al., arXiv 2309.14509). Heads are
// dealt as evenly as possible; a rank may get none. Its two functions are collective, in the forward and in
// the backward.
class HeadExchange {
 public:
  HeadExchange(const SharedTokens& tokens, int64_t num_heads, std::shared_ptr<comm::Communicator> group,
               at::Device device);

  // The heads of this rank.
  int64_t first_head() const { return first_head_; }
  int64_t own_heads() const { return own_heads_; }
  // The number of all shared tokens.
  int64_t num_tokens() const { return from_held_.size(0); }

  // Returns all shared tokens for this rank's heads, [tokens, own heads * width], of which `part` gives this
  // rank's tokens for any heads: [own tokens, count * width].
  at::Tensor to_heads(const std::function<at::Tensor(int64_t first, int64_t count)>& part,
                      int64_t width) const;
  // Returns this rank's tokens for all heads, [own tokens, heads * width], of x, [tokens, own heads * width].
  at::Tensor to_tokens(const at::Tensor& x, int64_t width) const;

 private:
  const std::shared_ptr<comm::Communicator> group_;
  int64_t num_heads_, first_head_, own_heads_;
  std::vector<int64_t> tokens_of_rank_;
  // from_held_[i] is the place, among the tokens as they arrive, of token i in the order of the line;
  // from_line_ is the inverse.
  at::Tensor from_held_, from_line_;
};

}  // namespace tessera::parallel
