// An MLP of many experts, of which each token takes a few.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tessera/nn/mlp.h"
#include "tessera/nn/sequence.h"

namespace tessera::nn {

using Experts = std::vector<std::shared_ptr<MLP>>;

// Between the choice of experts and what they give: how rows come to their experts and back.
class ExpertCore {
 public:
  virtual ~ExpertCore() = default;
  // rows: [n, hidden_size], those of one expert after the other; ends: [experts], int32 on their device,
  // where each expert's end. Returns what the experts make of them, in the same order. May be collective, and
  // runs again where a hook runs its block again. A RandomScope that knows the rows is that of these.
  virtual at::Tensor run(const at::Tensor& rows, const at::Tensor& ends, const Experts& experts) const = 0;
};

// How many rows each expert has, read from the device.
std::vector<int64_t> row_counts(const at::Tensor& ends);

// All of them here. One product after the other for each expert's rows, whose number is not bounded: no token
// is dropped. In a forward with a graph, experts without rows run too, so that every weight gets a gradient.
// Where experts have dropout, the RandomScope knows the rows (RandomPlace::rows).
at::Tensor run_experts(const at::Tensor& rows, const std::vector<int64_t>& counts, const Experts& experts);

struct SparseMLPOptions {
  int64_t num_experts = 0;
  int64_t experts_per_token = 0;
  // Whether the probabilities of a token's experts are divided by their sum.
  bool normalises = true;
  MLPOptions expert;
};

// sum over a token's experts e of p_e expert_e(x), where p is the softmax of gate(x), in float32 or float64,
// and its experts are those of the largest p_e. Children: `gate`, the router, and `experts`, a list of MLPs,
// with the names of Hugging Face files.
class SparseMLP : public Layer {
 public:
  SparseMLP(const SparseMLPOptions& options, at::ScalarType dtype);

  // x: [tokens, hidden_size] -> [tokens, hidden_size]. Reads from the device how many rows each expert gets,
  // except where runs_grouped() (grouped_experts.h) says otherwise.
  at::Tensor forward(const ops::Activation& x, const SequenceContext& context);

  // Whether forward() reads nothing from the device, however few rows of this type it has.
  bool never_reads(at::ScalarType type) const;

  // Of every expert: MLP::recompute_hidden().
  void recompute_hidden();
  void set_core(std::shared_ptr<const ExpertCore> core) { core_ = std::move(core); }

  const SparseMLPOptions& options() const { return options_; }

  std::shared_ptr<Linear> gate;  // [num_experts, hidden_size]
  Experts experts;

 private:
  at::Tensor mix(const ops::Activation& x, const SequenceContext& context) const;
  // Whether an expert draws dropout masks.
  bool drops() const;

  const SparseMLPOptions options_;
  std::shared_ptr<const ExpertCore> core_;
};

}  // namespace tessera::nn
