// LoRA (Hu et al., arXiv 2106.09685): trained low-rank products beside frozen linear layers.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <torch/nn/module.h>

#include "tessera/nn/initial_value.h"
#include "tessera/nn/linear.h"
#include "tessera/nn/random_scope.h"
#include "tessera/ops/pass_through.h"
#include "tessera/peft/expert_factors.h"

namespace tessera::peft {

// How the factors of a new adapter begin.
struct LoraStart {
  // Standard: A uniform in +-1/sqrt(in), B zero. Gaussian: A normal with the standard deviation 1/rank, B
  // zero. Random: A and B uniform. Pissa, Olora: with the main part of the base's weight (low_rank.h), which
  // is taken out of the weight. Loftq: with the main part of what quantisation has taken from the weight (Li
  // et al., arXiv 2310.08659, algorithm 1 with one iteration).
  enum class Kind { Standard, Gaussian, Random, Pissa, Olora, Loftq };
  Kind kind = Kind::Standard;
  int64_t iterations = 0;  // of PiSSA's fast decomposition; 0 = the exact one

  bool takes_from_base() const { return kind == Kind::Pissa || kind == Kind::Olora; }
  // Tells whether the first factors are made of the base's weight at all.
  bool reads_base() const { return takes_from_base() || kind == Kind::Loftq; }
};

// Reads PEFT's name of a start: "true", "false", "gaussian", "pissa", "pissa_niter_<N>", "olora" or
// "loftq". Throws
// Error(Config, "LORA") for another one.
LoraStart lora_start(const std::string& name);

// Kinds of adapters: low-rank products; trained factors of outputs or inputs (ia3.h); the norms of the model,
// trained whole ("LN tuning", Zhao et al., arXiv 2312.11420); vectors around shared random matrices (vera.h).
// Prompt: rows before every document (prompt tuning, Lester et al., arXiv 2104.08691).
enum class AdapterMethod { Lora, Ia3, Norms, Vera, Prompt };

// Options of AdapterMethod::Prompt, named as in PEFT.
struct PromptOptions {
  int64_t num_virtual_tokens = 20;
  // Begins with the embeddings of this text, repeated or cut off; empty: with random values.
  std::string init_text = {};
  std::vector<int64_t> init_ids = {};  // the tokens of the text
};

// Ends of the names of the factors A and B of a layer's adapter.
inline constexpr const char* kFactorA = ".lora_A.weight";
inline constexpr const char* kFactorB = ".lora_B.weight";

class VeraProjections;

// Options of AdapterMethod::Vera, named as in PEFT.
struct VeraOptions {
  int64_t rank = 256;
  double d_initial = 0.1;
  int64_t projection_prng_key = 0;  // the seed of the shared matrices
  bool save_projection = true;      // whether the adapter's files hold them
};

struct LoraOptions {
  // Norms need no target, and target_modules then names norms; all norms if nothing is named. Kinds other
  // than Lora read no rank, scale, DoRA, bias and start; Ia3 and Norms no dropout either.
  AdapterMethod method = AdapterMethod::Lora;
  VeraOptions vera = {};
  PromptOptions prompt = {};
  // Ends of the names of layers whose inputs Ia3 multiplies.
  std::vector<std::string> feedforward_modules = {};
  int64_t rank = 8;
  double alpha = 16.0;
  double dropout = 0.0;     // on the adapter's input, in training
  bool use_rslora = false;  // scaling alpha / sqrt(rank) instead of alpha / rank
  bool use_dora = false;    // trains the length of each row of the weight apart from its direction (dora.h)
  bool has_bias = false;    // adds a trained bias to B's product, before the scaling
  std::string start = "true";  // see lora_start()
  // These say which layers get an adapter. all_linear: every linear layer that takes one (the output
  // projection does not). target_regex: the layers whose whole name matches it. target_modules: the layers
  // whose name is one of these, or ends in '.' and one of these. At least one of the three is given;
  // all_linear may be given together with either of the others and then adds to it.
  bool all_linear = false;
  std::string target_regex;
  std::vector<std::string> target_modules;
  // Parameters that Transformers holds for all experts of a layer, whose experts each get an adapter (PEFT's
  // target_parameters): "mlp.experts.down_proj", the ends of their names. Numbers of blocks and exclusions
  // have no effect on them. For models with joined experts (models::BaseModel::with_joined_experts()).
  std::vector<std::string> target_parameters = {};
  // Layers that get no adapter although the targets name them: those whose whole name matches exclude_regex,
  // or that exclude_modules names as target_modules does.
  std::string exclude_regex;
  std::vector<std::string> exclude_modules;
  // Numbers of the blocks whose layers get an adapter; empty = all. Not together with target_regex, and
  // without effect on a layer that target_modules names in full. A block's number is the first one that
  // stands behind one of the layers_pattern (regular expressions), or behind any two names if there are none.
  std::vector<int64_t> layers_to_transform;
  std::vector<std::string> layers_pattern;
  // Ranks and alphas of the layers whose name matches a key: a regular expression for the whole name, or for
  // all behind one of its dots. The first key that matches counts; other layers have `rank` and `alpha`.
  std::vector<std::pair<std::string, int64_t>> rank_pattern = {};
  std::vector<std::pair<std::string, double>> alpha_pattern = {};
  // Modules, named as in target_modules, that are trained whole and saved with the adapter, with all that is
  // in them.
  std::vector<std::string> modules_to_save;
  bool is_of_classifier = false;  // the files say SEQ_CLS to PEFT, and not CAUSAL_LM
  bool is_seq2seq = false;        // the files say SEQ_2_SEQ_LM
  bool is_masked_lm = false;      // the files say none, as PEFT has no such task
  bool is_of_tokens = false;      // of a classifier of tokens: TOKEN_CLS
  // Ids of tokens whose rows of the embedding are trained beside the layers (nn::Embedding::token_rows()),
  // those of an output projection that shares the embedding's weight with them. Of Lora alone.
  std::vector<int64_t> trainable_token_indices = {};
};

// Returns the factor of the product B A for a layer of the options' own rank and alpha (LayerOptions).
double lora_scaling(const LoraOptions& options);

// Throws Error(Config, "LORA") for values outside their ranges, where no target is given, and for
// target_modules together with target_regex.
void check_options(const LoraOptions& options);

// The adapter of one layer, whose weight becomes W + scaling B A. Its children are made on the meta device in
// the dtype of the layer: lora_A (weight [rank, in]) and lora_B (weight [out, rank], and with has_bias bias
// [out]); with use_dora lora_magnitude_vector (weight [out]). If the start takes from the base, the
// frozen lora_A_start and lora_B_start hold the first value of A and the negative first value of B: the
// weight is then W + scaling (B A - B0 A0), which is what it would be if W had been reduced, and W stays as
// it is.
class LoraAdapter : public nn::LinearAdapter {
 public:
  // `site` is the name of the layer, from which its dropout masks and initial values derive. The rank and
  // alpha of `options` hold, whatever its patterns say. Throws Error(Config, "LORA") for a start that reads
  // the base's weight, with a rank above the layer's sizes. `experts`: the number of those whose factors
  // files hold together.
  LoraAdapter(const nn::Linear& layer, const LoraOptions& options, const std::string& site,
              int64_t experts = 1);

  // Takes x as [..., in] and returns [..., out], the layer's own product included. Dropout applies in
  // training mode (the layer's own train()/eval()), and then needs an nn::RandomScope.
  at::Tensor forward(const ops::Activation& x, const ops::Weight& weight,
                     const std::optional<at::Tensor>& bias,
                     const c10::intrusive_ptr<ops::RowExchange>& output = {}) override;
  bool drops() const override;
  // Returns what the adapter adds to the layer's own output for x, [rows, in]: [rows, out], without dropout.
  // The adapter is not DoRA's, whose output is no such sum. Of a part of the inputs it is a part of the sum.
  at::Tensor change(const at::Tensor& x) const;

  std::vector<nn::AdapterParameter> adapter_parameters() const override;
  void set_input_part(int64_t first, int64_t in_features, const ops::ChangeInPlace& sum) override;

  double scaling() const { return scaling_; }

 private:
  struct Factor;
  using RowsOut = c10::intrusive_ptr<ops::RowExchange>;

  // The layer with the part of its weight that no dropout is for: W, or W - scaling B0 A0.
  at::Tensor fixed_product(const ops::Activation& x, const ops::Weight& weight,
                           const std::optional<at::Tensor>& bias, const RowsOut& output) const;
  // Ranks that hold other columns of x have the other parts of y: returns the share of the bias that each
  // adds.
  double bias_share() const;
  // scaling B A x, for an x that dropout has been applied to.
  at::Tensor trained_product(const at::Tensor& x, const RowsOut& output) const;
  at::Tensor directed(const ops::Activation& x, const ops::Weight& weight,
                      const std::optional<at::Tensor>& bias, const std::optional<at::Tensor>& mask,
                      const RowsOut& output) const;
  at::Tensor with_magnitude(const ops::Activation& x, const ops::Weight& weight,
                            const std::optional<at::Tensor>& bias, const std::optional<at::Tensor>& mask,
                            const RowsOut& output) const;

  std::shared_ptr<Factor> a_, b_;
  std::shared_ptr<Factor> a_start_, b_start_;  // null unless the start takes from the base
  std::shared_ptr<Factor> magnitude_;          // null without DoRA
  double scaling_, dropout_;
  uint64_t stream_;         // of the random numbers for dropout
  nn::RowPart input_;       // the columns of the input that x holds
  ops::ChangeInPlace sum_;  // over the ranks that hold the other columns; empty if there are none
};

// A parameter of the base model whose values stand in an adapter's files, where PEFT's save_embedding_layers
// has put them.
struct CarriedParameter {
  std::string name;                  // "model.embed_tokens.weight"
  std::vector<std::string> aliases;  // other names for the same weight: "lm_head.weight" if they are tied
};

// Result of apply_lora().
struct LoraTargets {
  std::vector<std::string> adapted;  // names of the layers with an adapter
  std::vector<std::string> saved;    // names of the modules that are trained whole
  ExpertPlaces experts = {};         // the places of the adapted layers that are an expert's
  // Frozen parameters whose values an adapter's files bring beside its factors (find_carried()).
  std::vector<CarriedParameter> carried = {};
  // The family's files hold the weights of the adapted layers transposed; PEFT's config has to say so.
  bool fan_in_fan_out = false;
  bool are_norms = false;         // `saved` are the layers of AdapterMethod::Norms
  std::string token_table = {};   // the embedding of trainable_token_indices
  std::string prompt_table = {};  // the embedding before whose rows AdapterMethod::Prompt puts its own
  int64_t prompt_dim = 0;         // the length of these rows
  // The matrices that the layers of AdapterMethod::Vera share; otherwise null.
  std::shared_ptr<VeraProjections> projections = nullptr;
};

// Puts adapters on the layers of `model` that the options name and freezes every other parameter, except in
// modules_to_save. `untouchable` modules (whose weight another part of the model shares) may not be named in
// modules_to_save. Throws Error(Config, "LORA-TARGET"), which lists the layers that there are, when nothing
// matches, a name matches nothing, or target_regex matches an embedding or a module that shares its weight.
// Errors about modules_to_save have the key() lora_modules_to_save, those about tokens
// peft_trainable_token_indices.
LoraTargets apply_lora(torch::nn::Module& model, const LoraOptions& options,
                       const std::vector<std::string>& untouchable = {});

// Finds the targets of apply_lora() and leaves the model as it is. Does not fill in fan_in_fan_out. Throws
// what apply_lora() throws.
LoraTargets find_lora_targets(const torch::nn::Module& model, const LoraOptions& options,
                              const std::vector<std::string>& untouchable = {});

// Returns the kinds of layers among these names, their last components, in their order, each once: q_proj and
// k_proj rather than the name of every layer.
std::vector<std::string> kinds_of(const std::vector<std::string>& names);

// Tells by its name whether a parameter belongs to an adapter of a layer, such as "<layer>.lora_A.weight".
bool is_lora_parameter(const std::string& name);

}  // namespace tessera::peft
