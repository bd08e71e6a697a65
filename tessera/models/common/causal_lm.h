// The face that every causal language model shows: loss for training, logits for tests and scoring, next
// logits for generation. Single-device code; sharding reaches it through call hooks.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <torch/nn/module.h>

#include "tessera/checkpoint/layer_parts.h"
#include "tessera/models/common/model_config.h"
#include "tessera/nn/block.h"
#include "tessera/nn/kv_cache.h"
#include "tessera/nn/output_head.h"
#include "tessera/nn/sequence.h"
#include "tessera/ops/pass_through.h"

namespace tessera::models {

// A parameter that Hugging Face files may hold under a second name.
struct TiedParameter {
  std::string alias;  // "lm_head.weight"
  std::string owner;  // "model.embed_tokens.weight"
};

// What one sequence of a nn::KvCache is fed.
struct NewTokens {
  int64_t sequence = 0;
  std::vector<int64_t> ids;
};

// The blocks that this rank runs for next_logits(), where those before and behind them lie on other ranks.
struct DecodeStage {
  int64_t begin = 0, end = 0;
  // Runs the stage between its neighbours: `run` gives what the stage makes of the hidden states of the one
  // before it ([tokens, hidden_size]; undefined for begin 0): hidden states, or behind the last block the
  // logits [sequences, vocabulary]. Returns the logits, on every rank.
  std::function<at::Tensor(const std::function<at::Tensor(const at::Tensor& hidden)>& run, int64_t tokens,
                           int64_t sequences)>
      between;
};

// Parameters are named as in Hugging Face files and made on the meta device. All forwards run inside the call
// hook of the model itself, which therefore surrounds the embedding, the blocks, the final norm and the loss;
// each block runs inside its own.
class CausalLM : public torch::nn::Module {
 public:
  virtual const ModelConfig& config() const = 0;

  // The sum over the labelled positions of the cross entropy, and of what router_loss_weights() add, a scalar
  // (float32, or float64 for float64 models); the caller divides. Throws Error(Data) for ids or labels
  // outside the vocabulary and Error(Model) for a document longer than the model can take.
  at::Tensor loss(const nn::TokenBatch& batch);
  // A part of loss(): the blocks [begin, end), with what comes before them for begin 0 and the loss behind
  // the last one. Gives the hidden states [tokens + carried_rows(), hidden_size], or the loss. `hidden`:
  // those that the block before gave; unused for begin 0.
  at::Tensor run_blocks(const nn::TokenBatch& batch, int64_t begin, int64_t end,
                        const at::Tensor& hidden = {});
  // What hidden states between two run_blocks() carry beside tokens (nn::RouterBalance).
  int64_t carried_rows() const;
  // Of nn::RouterBalance, in place of the configuration's.
  void set_router_aux_loss_coef(double coefficient) { router_aux_loss_coef_ = coefficient; }
  void set_router_z_loss_coef(double coefficient) { router_z_loss_coef_ = coefficient; }
  // None, where no layer has experts.
  nn::RouterLossWeights router_loss_weights() const;
  // Of the token embedding (nn::Embedding::set_noise).
  void set_embedding_noise(double alpha);
  // For ranks that hold parts of a micro-batch's tokens: `sum` sums a tensor over them, in place.
  void set_token_sum(ops::ChangeInPlace sum) { token_sum_ = std::move(sum); }
  // [tokens, vocabulary], in the model's type. Holds all of them: for tests and scoring.
  at::Tensor logits(const nn::TokenBatch& batch);
  // Feeds each sequence its next tokens, at least one, after those that the cache holds of it, and returns
  // the logits after the last of them, [sequences, vocabulary]. Without gradient. With one new token for each
  // of at most ops::kSmallLinearRows sequences, a sequence's logits are the same to the last bit in any
  // batch.
  at::Tensor next_logits(nn::KvCache& cache, const std::vector<NewTokens>& batch);
  // What next_logits() has a device do for one new token of each row: from ids and positions, [rows] int64
  // where the model computes, to logits, [rows, vocabulary]. Of a whole model; checks nothing.
  at::Tensor decode(const at::Tensor& ids, const at::Tensor& positions, const nn::CacheView& cache);
  // Whether decode() is a fixed row of operations on the device: no other ranks, no hooks, and no experts
  // whose rows are counted by the host.
  bool decodes_alone() const;
  // Throws what next_logits() would throw for ids or lengths.
  void check_new_tokens(const nn::KvCache& cache, const std::vector<NewTokens>& batch) const;
  // Throws what next_logits() would throw for the ids as a new sequence: Error(Data) or Error(Model).
  void check_prompt(const std::vector<int64_t>& ids) const;
  // The type of the hidden states, and of a cache: that of the weights, unless load_weights() kept some of
  // them narrower than the model computes.
  at::ScalarType hidden_type() const { return hidden_type_.value_or(head().weight().scalar_type()); }
  // Where it computes: where its parameters lie.
  at::Device device() const;
  void set_hidden_type(at::ScalarType type) { hidden_type_ = type; }
  // For a cache that fits this model, or its stage.
  nn::KvCacheOptions cache_options() const;
  // From now on next_logits() runs this stage alone, and is collective over the ranks of all.
  void set_decode_stage(DecodeStage stage) { stage_ = std::move(stage); }

  // The parts of a forward pass, in its order: a stage of a pipeline is a range of them. Blocks are run
  // through nn::call() with one context for all; they are also the units of sharding and of recomputation.
  //
  // The hidden states of tokens before any block, [tokens, hidden_size], of hidden_type().
  virtual at::Tensor embed(const at::Tensor& input_ids, const at::Tensor& position_ids) = 0;
  // Adds what the family's blocks need of the positions.
  virtual void add_positions(nn::SequenceContext& context, const at::Tensor& position_ids) const;
  virtual const std::vector<std::shared_ptr<nn::Block>>& blocks() const = 0;
  virtual nn::OutputHead& head() const = 0;

  // Names that files may use for a parameter that named_parameters() lists under its owner's name.
  virtual std::vector<TiedParameter> tied_parameters() const = 0;
  // Where the family's files keep a parameter of the model: under its own name or one that tied_parameters()
  // lists, in the form that `layers` knows, unless the family says otherwise.
  virtual std::vector<checkpoint::StoredPart> stored_parts(const std::string& name,
                                                           const at::Tensor& parameter,
                                                           const checkpoint::LayerParts& layers) const;
  // Whether a file may hold the tensor `name` although the model has no use for it (buffers saved by old
  // versions).
  virtual bool ignores_tensor(const std::string& name) const;

 private:
  std::optional<at::ScalarType> hidden_type_;
  std::optional<DecodeStage> stage_;
  std::optional<double> router_aux_loss_coef_;
  double router_z_loss_coef_ = 0.0;
  ops::ChangeInPlace token_sum_;

  // After the last block, [tokens, hidden_size].
  at::Tensor hidden_states(const at::Tensor& input_ids, const at::Tensor& position_ids,
                           nn::SequenceContext context);
  // Logits behind the blocks [begin, end), of the tokens `last` where that is defined; or their hidden
  // states, where more blocks follow. input: ids for begin 0, else hidden states.
  at::Tensor run_cached(const at::Tensor& input, const at::Tensor& positions, const at::Tensor& last,
                        nn::SequenceContext context, int64_t begin, int64_t end);
  // x through the blocks [begin, end).
  at::Tensor through_blocks(at::Tensor x, int64_t begin, int64_t end,
                            const nn::SequenceContext& context) const;
  // What the backward of loss() does not read: the output projection and the tables of embeddings.
  std::vector<at::Tensor> forward_only_parameters() const;
  void check_ids(const at::Tensor& input_ids) const;
  void check_batch(const nn::TokenBatch& batch) const;
  void check_length(int64_t length, const std::optional<LengthBound>& bound) const;
};

}  // namespace tessera::models
