// The MLP of a transformer block.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "tessera/nn/dropout.h"
#include "tessera/nn/linear.h"
#include "tessera/nn/xielu.h"
#include "tessera/ops/mlp_activation.h"

namespace tessera::nn {

// The bounds of a gated MLP (OpenAI, arXiv 2508.10925, section 2): it computes down(g sigmoid(slope g) (u +
// 1)) of g = min(gate(x), limit) and u = up(x), cut off at -limit and limit. For ops::Nonlinearity::Silu
// alone.
struct ClampedGate {
  double slope = 1.0, limit = 0.0;
};

struct MLPOptions {
  int64_t hidden_size = 0, intermediate_size = 0;
  bool bias = false;
  ops::Nonlinearity activation = ops::Nonlinearity::Silu;
  // Names of the projections in the family's files. An empty `gate` makes an MLP without a gate, unless
  // `gate_up` has a name: one layer then makes both. Files hold all rows of its gate before those of up, but
  // the layer holds them in turns, so that a contiguous part of its outputs is a part of the MLP. If
  // `is_stored_in_turns`, files hold a row of the gate, then one of up, and so on.
  std::string gate = "gate_proj", up = "up_proj", down = "down_proj", gate_up;
  bool is_stored_in_turns = false;
  // Files hold the gate and up of a `gate_up` apart, under their own names.
  bool is_stored_apart = false;
  // These projections are no children of the MLP: the block registers them, under the names `up` and `down`.
  // The former is for an MLP without a gate.
  bool is_up_beside = false, is_down_beside = false;
  std::optional<ClampedGate> clamp;
  // The activation is an XIELU with parameters of its own, in the place of `activation`. For an MLP without a
  // gate.
  bool has_xielu = false;
};

// Computes down(f(gate(x)) * up(x)), or down(f(up(x))) without a gate. Its children are the projections, but
// for those beside it, and `act_fn` where the activation has parameters.
class MLP : public Layer {
 public:
  MLP(const MLPOptions& options, at::ScalarType dtype);

  // x: [tokens, hidden_size] -> [tokens, hidden_size].
  at::Tensor forward(const ops::Activation& x);

  // Stops keeping the outputs of gate_proj and up_proj, the largest tensors of a block, for the backward
  // pass: they are recomputed there, from what is kept of x anyway. The result is the same to the last bit if
  // the backward runs in the mode (train or eval) of the forward. An MLP with an XIELU keeps them all the
  // same.
  void recompute_hidden() { recomputes_hidden_ = true; }

  // Drops elements of what down_proj reads; null for none.
  void set_hidden_dropout(std::shared_ptr<const Dropout> dropout) { hidden_dropout_ = std::move(dropout); }

  bool recomputes_hidden() const { return recomputes_hidden_; }
  ops::Nonlinearity activation() const { return activation_; }

  // Returns the rows of gate, and of up, that lie side by side in gate_up_proj.
  int64_t turn() const { return turn_; }

  // Either up_proj exists, and gate_proj if the MLP has a gate, or gate_up_proj does; the others are null.
  std::shared_ptr<Linear> gate_proj, up_proj, down_proj, gate_up_proj;
  std::shared_ptr<XIELU> act_fn;  // null unless MLPOptions::has_xielu

 private:
  struct Projections {
    std::shared_ptr<Linear> gate, up, both;
    int64_t turn = 0;
    std::optional<ClampedGate> clamp;
    // Returns what the projections make of x. `gate` is undefined in an MLP without a gate.
    ops::MlpInputs operator()(const ops::Activation& x) const;
  };
  at::Tensor run_hidden(const ops::Activation& x) const;

  // Returns the elements of each hidden row that this rank has.
  RowPart hidden_part() const;

  ops::Nonlinearity activation_;
  int64_t intermediate_size_;
  std::optional<ClampedGate> clamp_;
  int64_t turn_ = 1;
  bool recomputes_hidden_ = false;
  std::shared_ptr<const Dropout> hidden_dropout_;
};

}  // namespace tessera::nn
