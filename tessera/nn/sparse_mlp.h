// An MLP of many experts; each token is sent through a few of them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tessera/nn/bare_values.h"
#include "tessera/nn/mlp.h"
#include "tessera/nn/norm.h"
#include "tessera/nn/sequence.h"

namespace tessera::nn {

using Experts = std::vector<std::shared_ptr<MLP>>;

// Brings rows to their experts, runs the experts, and brings the results back.
class ExpertCore {
 public:
  virtual ~ExpertCore() = default;
  // rows: [n, hidden_size], sorted by expert; ends: [experts] int32 on the same device, where each expert's
  // rows end. Returns the experts' results, [n, hidden_size], in the same order. May be collective, and runs
  // again if a hook reruns its block in the backward. If the RandomScope in force has `rows`, they are the
  // places of these rows.
  virtual at::Tensor run(const at::Tensor& rows, const at::Tensor& ends, const Experts& experts) const = 0;
};

// Returns how many of `num_rows` rows each expert has. Reads `ends` from the device, so the host waits; on
// the meta device, which holds no values, the rows are dealt evenly.
std::vector<int64_t> row_counts(const at::Tensor& ends, int64_t num_rows);

// Runs experts that all lie on this rank, one after the other. rows: [n, hidden_size], sorted by expert;
// expert e has counts[e] of them, with no upper bound, so no token is dropped. With gradients enabled,
// experts without rows run too, so that every weight gets a gradient. If experts have dropout, the
// RandomScope must have the places of the rows (RandomPlace::rows). Returns [n, hidden_size].
at::Tensor run_experts(const at::Tensor& rows, const std::vector<int64_t>& counts, const Experts& experts);

// The way in which a router's logits choose a token's experts and weigh their results.
struct RouterOptions {
  bool is_sigmoid = false;  // scores are the sigmoids of the logits, not their softmax
  // A frozen parameter, `e_score_correction_bias` of the router or one that SparseMLPOptions name, is added
  // to the scores for the choice alone (DeepSeek-V3, arXiv 2412.19437, section 2.1.2).
  bool has_correction = false;
  // Experts are chosen among those of the best groups only (DeepSeek-V2, arXiv 2405.04434, section 2.2.2). A
  // group's score is the sum of its `group_top` best ones.
  int64_t groups = 1, groups_per_token = 1, group_top = 1;
  // True: the scores of a token's experts are divided by the sum of theirs and `sum_eps`.
  bool normalises = true;
  double sum_eps = 0.0;
  // A token's weights multiply what its experts read, not what they give (Llama 4).
  bool scales_inputs = false;
  double scale = 1.0;  // multiplies the weights
};

struct SparseMLPOptions {
  int64_t num_experts = 0;
  int64_t experts_per_token = 0;
  RouterOptions router;
  MLPOptions expert;
  std::string gate = "gate";  // name of the router in the family's files
  bool gate_bias = false;
  std::string correction = {};  // name of the frozen parameter, of the MLP itself; empty: the router's
  // `norm` is the kind of norm that the next two members name. If `input_norm` is not empty, experts read x
  // through a norm of this name. If `input_scale` is not empty, the router reads x through a norm without a
  // scale, times a trained vector of this name and hidden_size^-0.5.
  NormOptions norm = {};
  std::string input_norm = {}, input_scale = {};
  // If it has a name, the weight of an expert is multiplied by its number in a trained vector of this name.
  std::string expert_scale = {};
  // The router, and all that the three options above name, are children of the block and not of the MLP
  // (SparseMLP::register_in). Files name the stacks so, too: the MLP's own name is in none of their names.
  bool is_beside = false;
  // If set, files hold the weights of all experts together (nn::StoredStack), in tensors of these names:
  // "experts.gate_up_proj". An expert then has gate_up_proj. `are_transposed`: they are [experts, in, out].
  struct Stacks {
    std::string gate_up, down, gate_up_bias, down_bias;
    bool are_transposed = false;
  };
  std::optional<Stacks> stacks;
  // Transformers' name for the whole MLP, where it is not that of the family's files.
  std::string transformers_name = {};
  // If set, an MLP through which all tokens go. Its result is added; by option, times the sigmoid of its own
  // gate.
  std::optional<MLPOptions> shared;
  std::string shared_name = "shared_expert";  // in the family's files
  bool has_shared_gate = true;
};

// Computes the sum of p_e expert_e(x) over the experts e of a token. p is the softmax of gate(x), in float32
// or float64, and a token's experts are those with the largest p_e, unless RouterOptions say otherwise. By
// option it adds sigmoid(shared_expert_gate(x)) shared_expert(x). Its children have the names of Hugging Face
// files: `gate`, the router, which the options may call otherwise, `experts`, a list of MLPs, and
// `shared_expert` with `shared_expert_gate`; and, by option, what its input goes through.
class SparseMLP : public Layer, public HasInitialValues {
 public:
  SparseMLP(const SparseMLPOptions& options, at::ScalarType dtype);

  InitialValue initial_value(std::string_view) const override { return InitialValue::zeros(); }

  // Registers in `parent`, the block, what SparseMLPOptions::is_beside speaks of. Call it once the MLP itself
  // is registered there: who looks for routers meets the MLP first.
  void register_in(torch::nn::Module& parent);

  // x: [tokens, hidden_size] -> [tokens, hidden_size]. The host reads from the device how many rows each
  // expert gets, unless runs_grouped() (grouped_experts.h) makes that unnecessary.
  at::Tensor forward(const ops::Activation& x, const SequenceContext& context);

  // Returns whether forward() reads nothing from the device for rows of this type, however few they are.
  bool never_reads(at::ScalarType type) const;

  // Calls MLP::recompute_hidden() of every expert and of the shared one.
  void recompute_hidden();
  void set_core(std::shared_ptr<const ExpertCore> core) { core_ = std::move(core); }

  const SparseMLPOptions& options() const { return options_; }

  std::shared_ptr<Linear> gate;  // [num_experts, hidden_size]
  Experts experts;
  std::shared_ptr<MLP> shared_expert;          // null without one
  std::shared_ptr<Linear> shared_expert_gate;  // [1, hidden_size]; null without such a gate
  at::Tensor correction;  // [num_experts], frozen; undefined without RouterOptions::has_correction
  // Null without a name.
  std::shared_ptr<Norm> input_norm;
  std::shared_ptr<BareValues> input_scale;   // [hidden_size]
  std::shared_ptr<BareValues> expert_scale;  // [num_experts]

 private:
  struct Routes {
    at::Tensor chosen;   // [tokens, experts per token] int64, ascending
    at::Tensor weights;  // of the same shape
  };
  Routes route(const ops::Activation& x, const SequenceContext& context) const;
  // Returns what the router reads.
  ops::Activation routed(const ops::Activation& x) const;
  // Returns which experts are chosen by these scores, [tokens, experts], without gradient.
  at::Tensor choose(const at::Tensor& scores) const;
  // `read`: x as experts read it.
  at::Tensor mix(const ops::Activation& x, const ops::Activation& read, const SequenceContext& context) const;
  // Returns whether any expert draws dropout masks.
  bool drops() const;

  const SparseMLPOptions options_;
  std::shared_ptr<const ExpertCore> core_;
  std::shared_ptr<Norm> routed_norm_;  // null without input_scale
};

}  // namespace tessera::nn
