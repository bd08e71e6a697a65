// Values that one part of a forward pass makes and later parts read, past the hidden states between them.
#pragma once

#include <cstddef>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/custom_class.h>

namespace tessera::nn {

// Blocks hand each other one tensor, and hooks may run a block again in the backward, alone. So what else a
// block reads of an earlier part does not lie in the graph between them: the values stand here, without their
// graph, and in the backward their gradients are summed here until the part that made them takes the sum.
//
// Both parts give a tensor of their own that the later part's depends on. It passes through give() and
// read(), which puts the backward of every read() before that of the give(). A part that runs again gives or
// reads again; the values must be the same.
class SharedValues : public torch::CustomClassHolder {
 public:
  // Keeps the values for those that read them. Returns `through`; in the backward, the values get the sums of
  // their readers' gradients before its gradient goes on.
  at::Tensor give(const at::Tensor& through, const std::vector<at::Tensor>& values);

  // Returns `count` of the values, from number `first` on, and in front of them `through`.
  std::vector<at::Tensor> read(const at::Tensor& through, size_t first, size_t count);

 private:
  struct GiveFunction;
  struct ReadFunction;

  std::vector<at::Tensor> values_, gradients_;
};

}  // namespace tessera::nn
