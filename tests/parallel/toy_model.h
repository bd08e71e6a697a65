// A small model of plain LibTorch modules with awkward sizes, and its data, on which layouts are compared.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <torch/nn/module.h>

#include "tessera/nn/call_hook.h"
#include "tessera/nn/materialize.h"
#include "tessera/ops/embedding.h"
#include "tessera/ops/linear.h"
#include "tessera/ops/linear_cross_entropy.h"

namespace tessera::testing {

inline at::Tensor toy_values(at::IntArrayRef shape, double phase) {
  int64_t count = 1;
  for (const int64_t size : shape) count *= size;
  return (at::sin(at::arange(count, at::kDouble) * 1.7 + phase) * 0.4).view(shape);
}

// How the loss is computed: Plain by LibTorch's operations; Direct by the project's, which add gradients
// directly and whose loss reads neither table in the backward; ForwardOnly also promises that
// (nn::ForwardOnlyScope).
enum class ToyLoss { Plain, Direct, ForwardOnly };

class ToyBlock : public torch::nn::Module {
 public:
  ToyBlock(int64_t width, int64_t inner, double phase) {
    up = register_parameter("up", toy_values({inner, width}, phase));
    bias = register_parameter("bias", toy_values({inner}, phase + 1));
    down = register_parameter("down", toy_values({width, inner}, phase + 2));
    gain = register_parameter("gain", toy_values({1}, phase + 3) + 1.0);
  }
  at::Tensor forward(const at::Tensor& x) {
    return x + at::linear(at::tanh(at::linear(x, up, bias)), down) * gain;
  }
  at::Tensor up, bias, down, gain;
};

// The toy model. Embedding and head share one parameter of 11 rows; blocks have width 5, and 7 or 3 inner
// rows.
class ToyModel : public torch::nn::Module {
 public:
  ToyModel() {
    embedding = register_parameter("embedding", toy_values({kWords, kWidth}, 0.3));
    head = register_parameter("head", embedding);
    for (int i = 0; i < 3; ++i) {
      blocks.push_back(register_module("block" + std::to_string(i),
                                       std::make_shared<ToyBlock>(kWidth, i == 1 ? 3 : 7, 0.5 * i)));
    }
    unused = register_parameter("unused", toy_values({4, 2}, 9.0));
  }

  // Returns the cross entropy of the next word, summed over the label tokens.
  at::Tensor loss(const at::Tensor& words, const at::Tensor& labels, ToyLoss kind = ToyLoss::Plain) {
    if (kind != ToyLoss::Plain) return direct_loss(words, labels, kind);
    return nn::call_hooked(*this, words, [this, labels](const at::Tensor& ids) {
      at::Tensor x = at::embedding(embedding, ids);
      for (const auto& block : blocks) x = nn::call(*block, x);
      const at::Tensor log_probability = at::log_softmax(at::linear(x, head), -1);
      return at::nll_loss(log_probability, labels, {}, at::Reduction::Sum, -100);
    });
  }

  std::vector<std::shared_ptr<torch::nn::Module>> units() const { return {blocks.begin(), blocks.end()}; }

  static constexpr int64_t kWords = 11, kWidth = 5;
  at::Tensor embedding, head, unused;
  std::vector<std::shared_ptr<ToyBlock>> blocks;

 private:
  at::Tensor direct_loss(const at::Tensor& words, const at::Tensor& labels, ToyLoss kind) {
    std::vector<at::Tensor> forward_only;
    if (kind == ToyLoss::ForwardOnly) forward_only.push_back(embedding);
    const nn::ForwardOnlyScope scope(forward_only);
    return nn::call_hooked(*this, words, [this, labels](const at::Tensor& ids) {
      at::Tensor x = ops::embedding(embedding, ids);
      for (const auto& block : blocks) {
        x = nn::call_hooked(*block, x, [&block = *block](const at::Tensor& in) {
          return in + ops::linear(at::tanh(ops::linear(in, block.up, block.bias)), block.down) * block.gain;
        });
      }
      return ops::linear_cross_entropy(x, head, labels);
    });
  }
};

// Makes a tensor what it would be if it had been built on the meta device.
inline void move_to_meta(at::Tensor tensor) {
  nn::materialize(tensor,
                  at::empty(tensor.sizes(), at::TensorOptions(at::kMeta).dtype(tensor.scalar_type())));
}
inline void move_to_meta(torch::nn::Module& module) {
  for (const at::Tensor& parameter : module.parameters()) move_to_meta(parameter);
  for (const at::Tensor& buffer : module.buffers()) move_to_meta(buffer);
}

struct ToyBatch {
  at::Tensor words, labels;
};

// Returns micro-batch `index` of a step. Lengths and numbers of labels differ, and one has no label at all.
inline ToyBatch toy_batch(int64_t index) {
  const int64_t length = 3 + index % 4;
  const at::Tensor words = at::remainder(at::arange(length, at::kLong) * 3 + index * 5, ToyModel::kWords);
  at::Tensor labels = at::remainder(words * 2 + 1, ToyModel::kWords);
  for (int64_t i = 0; i < length; ++i) {
    if ((i + index) % 3 == 0 || index == 5) labels[i] = -100;
  }
  return {words, labels};
}

}  // namespace tessera::testing
