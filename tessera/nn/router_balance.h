// Losses on the routers of a model's experts: one that asks for an even use of the experts, and one that asks
// for small logits.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>
#include <torch/custom_class.h>

namespace tessera::nn {

// Weights of the two losses in the loss of each label token; 0 switches a loss off.
struct RouterLossWeights {
  double balance = 0.0, z = 0.0;
  bool is_any() const { return balance > 0.0 || z > 0.0; }
};

// The routers' losses of one micro-batch.
//
// The balance loss is N sum_e f_e P_e for N experts, where f_e is how often the routers choose expert e for a
// token and P_e the probability that they give it, both as means over all sparse layers and all tokens of the
// micro-batch (Fedus et al., "Switch Transformers", arXiv 2101.03961, equations 4 to 6, over all layers at
// once as Transformers has it). The z-loss is the mean of (log sum_e exp(logit_e))^2 over the same layers and
// tokens (Zoph et al., "ST-MoE", arXiv 2202.08906, equation 5). Both, times their weights, are added to the
// loss of every label token.
//
// In the forward each layer adds its sums. The gradients of its logits and probabilities need the sums of all
// layers, ranks and stages, so they are made in the backward only, when all sums are there. A block that runs
// again in the backward adds nothing.
class RouterBalance : public torch::CustomClassHolder {
 public:
  // The sums lie on `device`.
  RouterBalance(int64_t num_experts, const RouterLossWeights& weights, at::Device device);

  // Adds the logits of one layer, [tokens, experts], to the sums of the z-loss, and returns them; the
  // gradient of the z-loss, times `share`, is added to their gradient in the backward. Call it before the
  // probabilities are made of the logits. `is_added` is as in add_layer().
  at::Tensor add_logits(const at::Tensor& logits, const at::Tensor& is_added, double share);

  // Adds the probabilities of one layer, [tokens, experts], and the experts that it has chosen, [tokens,
  // experts per token], to the sums of the balance loss. Returns the probabilities; the gradient of the loss,
  // times `share` (nn::LayerParallel::share()), is added to their gradient in the backward. `is_added`,
  // [tokens] bool, marks tokens that are no part of the data and count nowhere; undefined: none.
  at::Tensor add_layer(const at::Tensor& probabilities, const at::Tensor& chosen, const at::Tensor& is_added,
                       double share);

  // All sums in one float64 tensor: how often each expert was chosen, its summed probabilities, the number of
  // tokens times layers, the number of label tokens, and the squares of the z-loss. Sum it over the ranks
  // that hold other tokens of the micro-batch before add_loss().
  at::Tensor& sums() { return sums_; }
  // Returns `loss`, a sum over `labels` (-100: no label), plus the routers' losses of these labels. No layer
  // may come after it. If `values` is defined ([2], float64), the balance loss and the z-loss, each times the
  // number of labels, are added to it.
  at::Tensor add_loss(const at::Tensor& loss, const at::Tensor& labels, const at::Tensor& values = {});

  // These carry the sums between the stages of a pipeline. with_sums() appends carried_rows() rows that hold
  // the sums so far to the hidden states, [tokens, hidden_size]; take_sums() takes them off again. In the
  // backward the same rows of the gradient carry the complete sums to the stages before.
  static int64_t carried_rows(int64_t num_experts, int64_t hidden_size, at::ScalarType type);
  at::Tensor with_sums(const at::Tensor& hidden);
  at::Tensor take_sums(const at::Tensor& carried);

  // Counts this rank's labels. Call it before the sums are summed over ranks, and thus before add_loss().
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
  // Writes the sums and the gradient of the loss as bytes into rows like those of `hidden`, and reads them
  // back; take() returns the number of rows before them.
  at::Tensor encode(const at::Tensor& hidden) const;
  int64_t take(const at::Tensor& carried);

  const int64_t num_experts_;
  const RouterLossWeights weights_;
  bool is_complete_ = false;  // set after the last layer; a layer that runs again then adds nothing
  at::Tensor sums_;
  at::Tensor loss_gradient_;  // [1]; set when the backward begins
};

}  // namespace tessera::nn
