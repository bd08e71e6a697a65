// How evenly the routers of a model use its experts, how large their logits are, and the losses that ask for
// evenness and small ones.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>
#include <torch/custom_class.h>

namespace tessera::nn {

// How much a label token's loss grows by each; 0: not at all.
struct RouterLossWeights {
  double balance = 0.0, z = 0.0;
  bool is_any() const { return balance > 0.0 || z > 0.0; }
};

// Of one micro-batch: N sum_e f_e P_e for N experts, where f_e is how often the routers choose expert e for a
// token, and P_e the probability that they give it, both as means over all sparse layers and all tokens of
// the micro-batch (Fedus et al., "Switch Transformers", arXiv 2101.03961, equations 4 to 6, over all layers
// at once as Transformers has it). And the z-loss, the mean over the same of (log sum_e exp(logit_e))^2 (Zoph
// et al., "ST-MoE", arXiv 2202.08906, equation 5). A label token's loss grows by both, times their weights.
//
// The layers add their sums in the forward and take the gradients of their logits and probabilities in the
// backward, when the sums of all layers, ranks and stages are there: blocks may run again.
class RouterBalance : public torch::CustomClassHolder {
 public:
  // Sums lie on `device`.
  RouterBalance(int64_t num_experts, const RouterLossWeights& weights, at::Device device);

  // A layer's logits [tokens, experts], before its probabilities are made of them. Returns them, with the
  // z-loss' gradient, `share` times, to come on their way back. `is_added`: as in add_layer().
  at::Tensor add_logits(const at::Tensor& logits, const at::Tensor& is_added, double share);

  // A layer's probabilities [tokens, experts], of which it has chosen [tokens, experts of a token]. Returns
  // them, with the loss' gradient, `share` times, to come on their way back. `is_added`: [tokens] bool,
  // tokens that are no part of the data and count nowhere; undefined: none.
  at::Tensor add_layer(const at::Tensor& probabilities, const at::Tensor& chosen, const at::Tensor& is_added,
                       double share);

  // Float64: how often each expert was chosen, its probabilities, tokens times layers, label tokens, squares
  // of the z-loss. To be summed over the ranks that hold other tokens of the micro-batch before add_loss().
  at::Tensor& sums() { return sums_; }
  // The loss, a sum over `labels` (-100: none), with what these add for them. No layer comes after. `values`,
  // where it is defined, gets the balance and the z-loss added, each times the labels: [2], float64.
  at::Tensor add_loss(const at::Tensor& loss, const at::Tensor& labels, const at::Tensor& values = {});

  // Between the stages of a pipeline: hidden states [tokens, hidden_size] with carried_rows() more that hold
  // the sums so far, and without. On the way back they hold the sums of all.
  static int64_t carried_rows(int64_t num_experts, int64_t hidden_size, at::ScalarType type);
  at::Tensor with_sums(const at::Tensor& hidden);
  at::Tensor take_sums(const at::Tensor& carried);

  // Of add_loss(): counts the labels that are here; the sums over ranks come between.
  void count_labels(const at::Tensor& labels);

 private:
  struct LogitsFunction;
  struct LayerFunction;
  struct LossFunction;
  struct WithSumsFunction;
  struct TakeSumsFunction;

  at::Tensor chosen() const { return sums_.narrow(0, 0, num_experts_); }
  at::Tensor probabilities() const { return sums_.narrow(0, num_experts_, num_experts_); }
  at::Tensor rows() const { return sums_.narrow(0, 2 * num_experts_, 1); }
  at::Tensor label_tokens() const { return sums_.narrow(0, 2 * num_experts_ + 1, 1); }
  at::Tensor squares() const { return sums_.narrow(0, 2 * num_experts_ + 2, 1); }
  static int64_t num_sums(int64_t num_experts) { return 2 * num_experts + 3; }
  // Sums and the gradient of the loss as bytes of rows like hidden's; and back, of how many rows before them.
  at::Tensor encode(const at::Tensor& hidden) const;
  int64_t take(const at::Tensor& carried);

  const int64_t num_experts_;
  const RouterLossWeights weights_;
  bool is_complete_ = false;  // layers run again
  at::Tensor sums_;
  at::Tensor loss_gradient_;  // [1], once the backward has begun
};

}  // namespace tessera::nn
