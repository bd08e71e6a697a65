// The interface of every model: the loss for training, logits for tests and scoring, and, of causal language
// models, next logits for generation. This is single-device code; sharding reaches it through call hooks.
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
#include "tessera/nn/adapter_rows.h"
#include "tessera/nn/embedding.h"
#include "tessera/nn/kv_cache.h"
#include "tessera/nn/parameter_role.h"
#include "tessera/nn/sequence.h"
#include "tessera/nn/task_head.h"
#include "tessera/nn/transformer_block.h"
#include "tessera/ops/pass_through.h"

namespace tessera::models {

// A parameter that Hugging Face files may hold under a second name.
struct TiedParameter {
  std::string alias;  // "lm_head.weight"
  std::string owner;  // "model.embed_tokens.weight"
};

// The next tokens of one sequence of a nn::KvCache.
struct NewTokens {
  int64_t sequence = 0;                           // its number in the cache
  std::vector<int64_t> ids;                       // the tokens that follow those in the cache
  int64_t num_logits = 1;                         // logits are wanted after each of this many last ones
  int64_t adapter = nn::AdapterRows::kNoAdapter;  // the adapter of these tokens; see set_adapter_rows()
};

// The stages that this rank runs for next_logits() when the blocks between them lie on other ranks.
struct DecodeStages {
  struct Blocks {
    int64_t begin, end;  // the blocks [begin, end)
  };
  std::vector<Blocks> own;  // in the model's order
  // Runs the stages between those of other ranks and returns the logits, [rows, vocabulary], on every rank.
  // `run` computes a stage itself, own[stage]: it takes the hidden states of the stage before, [tokens,
  // hidden_size] (undefined for begin 0), and returns hidden states of that shape, or the logits after the
  // last block.
  using Run = std::function<at::Tensor(size_t stage, const at::Tensor& hidden)>;
  std::function<at::Tensor(const Run& run, int64_t tokens, int64_t rows)> between;
};

// Parameters are named as in Hugging Face files and made on the meta device. All forwards run inside the call
// hook of the model itself, which therefore surrounds the embedding, the blocks, the final norm and the loss;
// each block runs inside its own.
class CausalLM : public torch::nn::Module {
 public:
  virtual const ModelConfig& config() const = 0;

  // Returns the sum of the head's losses over the labelled positions, plus the router losses that
  // router_loss_weights() asks for: a scalar (float32, or float64 for float64 models). The caller divides it
  // by the number of labels. Throws Error(Data) for ids or labels outside the vocabulary and Error(Model) for
  // a document longer than the model can take.
  at::Tensor loss(const nn::TokenBatch& batch);
  // Runs a part of loss(): the blocks [begin, end), preceded by the embedding for begin 0 and followed by the
  // loss after the last block. Returns the hidden states [tokens + carried_rows(), hidden_size], or the loss.
  // `hidden` is the result of the block before, of the same shape; it is unused for begin 0.
  at::Tensor run_blocks(const nn::TokenBatch& batch, int64_t begin, int64_t end,
                        const at::Tensor& hidden = {});
  // Number of rows that hidden states between two run_blocks() have beyond one for each token: they carry the
  // routers' sums (nn::RouterBalance) from stage to stage. 0 if no router loss is asked for.
  int64_t carried_rows() const;
  // Sets the weight of the routers' balance loss (nn::RouterBalance), which replaces the configuration's
  // router_aux_loss_coef.
  void set_router_aux_loss_coef(double coefficient) { router_aux_loss_coef_ = coefficient; }
  // Sets the weight of the routers' z-loss (nn::RouterBalance), which is 0 unless it is set.
  void set_router_z_loss_coef(double coefficient) { router_z_loss_coef_ = coefficient; }
  // Returns the weights of the routers' losses; both are 0 if no layer has experts.
  nn::RouterLossWeights router_loss_weights() const;
  // Sets the noise that training adds to the token embedding (nn::Embedding::set_noise).
  void set_embedding_noise(double alpha);
  // Tells the model that other ranks hold the remaining tokens of its micro-batches (context parallelism):
  // `sum` sums a tensor over these ranks, in place.
  void set_token_sum(ops::ChangeInPlace sum) {
    head().set_token_sum(sum);
    token_sum_ = std::move(sum);
  }
  // Returns the logits of all tokens at once, [tokens, vocabulary] or [tokens, labels of a classifier], in
  // the model's type: for tests and scoring.
  at::Tensor logits(const nn::TokenBatch& batch);
  // Returns the hidden states of all tokens behind the last layer and the final norm, [tokens, hidden_size]:
  // what Transformers calls last_hidden_state. `adapter`: as in NewTokens.
  at::Tensor last_hidden_states(const nn::TokenBatch& batch, int64_t adapter = nn::AdapterRows::kNoAdapter);
  // Feeds each sequence its next tokens, at least one, after those that the cache holds of it (the first
  // tokens of a sequence are an encoder-decoder's source, behind which the start of its target comes), and
  // returns the logits after the last of them, [sequences, vocabulary], without gradient; after the last
  // num_logits if that is more than 1, one sequence after another, [sum of num_logits, vocabulary]. With one
  // new token for each of at most ops::kSmallLinearRows sequences, a sequence's logits are the same to the
  // last bit in any batch.
  at::Tensor next_logits(nn::KvCache& cache, const std::vector<NewTokens>& batch);
  // Does the device's part of next_logits() for one new token of each row: takes ids and positions, [rows]
  // int64 on the model's device, and returns logits, [rows, vocabulary]. The model must be whole (no stage).
  // Checks nothing.
  at::Tensor decode(const at::Tensor& ids, const at::Tensor& positions, const nn::CacheView& cache);
  // Tells whether decode() is a fixed sequence of operations on the device, which can be recorded: the model
  // has no call hooks, shares nothing with other ranks, and has neither experts whose rows the host counts
  // nor layers with a state, nor adapters that sequences choose.
  bool decodes_alone() const;
  // Tells whether some layer keeps a state behind the last token of a sequence (nn::GatedDeltaNet) in place
  // of the keys and values of all tokens.
  bool keeps_states() const;
  // Throws what next_logits() would throw for ids or lengths.
  void check_new_tokens(const nn::KvCache& cache, const std::vector<NewTokens>& batch) const;
  // Throws what next_logits() would throw for `ids` as a new sequence: Error(Data) or Error(Model).
  void check_prompt(const std::vector<int64_t>& ids) const;
  // Refuses, with Error(Model, "TASK"), an encoder-decoder and a masked language model for `use`, which needs
  // a model that continues texts.
  void check_continues_texts(const std::string& use) const;
  // Returns the number of virtual tokens that stand before every document (nn::Embedding::virtual_rows()),
  // with the ids from vocab_size on. Batches of loss() and logits() hold them; next_logits() puts them before
  // the first tokens of a sequence.
  int64_t num_virtual_tokens() const;
  // Returns the type of the hidden states and of a cache. It is that of the weights, unless load_weights()
  // kept some of them narrower than the model computes.
  at::ScalarType hidden_type() const { return hidden_type_.value_or(head().dtype()); }
  // Returns the device on which the model computes: the one that its parameters lie on.
  at::Device device() const;
  void set_hidden_type(at::ScalarType type) { hidden_type_ = type; }
  // Gives the model's layers several adapters, of which NewTokens::adapter names one: `rows` is the object
  // that peft::apply_row_adapters() has returned for this model. logits() and loss() use none.
  void set_adapter_rows(std::shared_ptr<nn::AdapterRows> rows) { adapter_rows_ = std::move(rows); }
  // Returns the options of a cache that fits this model, or the blocks of its decode stages. Throws
  // Error(Model, "TASK") for a classifier and a masked language model, which generate nothing.
  nn::KvCacheOptions cache_options() const;
  // Lets next_logits() run only the blocks of these stages from now on, which makes it collective over the
  // ranks of all stages.
  void set_decode_stages(DecodeStages stages) { stages_ = std::move(stages); }

  // The parts of a forward pass follow, in its order: a stage of a pipeline is a range of them. Blocks are
  // run through nn::call() with one context for all; they are also the units of sharding and of recompute.

  // Returns the hidden states before any block, [tokens, hidden_size], of hidden_type(). All ids are [tokens]
  // int64 on the model's device; without type_ids all are 0.
  virtual at::Tensor embed(const at::Tensor& input_ids, const at::Tensor& position_ids,
                           const at::Tensor& type_ids = {}) = 0;
  // Puts into `context` whatever else the family's blocks need of the tokens: made of their ids and of x,
  // what embed() has given. Returns what the first block reads instead of x.
  virtual at::Tensor add_inputs(nn::SequenceContext& context, const at::Tensor& input_ids,
                                const at::Tensor& x) const;
  // Puts into `context` whatever the family's blocks need of the positions, such as rotary angles.
  virtual void add_positions(nn::SequenceContext& context, const at::Tensor& position_ids) const;
  virtual const std::vector<std::shared_ptr<nn::TransformerBlock>>& blocks() const = 0;
  virtual nn::TaskHead& head() const = 0;
  // Lists the tables that embed() reads: that of the tokens, then any others, such as that of positions.
  virtual std::vector<std::shared_ptr<nn::Embedding>> embeddings() const = 0;
  // Returns what each parameter is for, by its name in named_parameters().
  nn::ParameterRoles parameter_roles() const;

  // Returns the name of the child that holds all but the output projection: "model". Files of a model that
  // was saved without its head leave it out of all names.
  virtual std::string body_name() const = 0;
  // Lists second names that files may use for a parameter that named_parameters() lists under its owner's
  // name.
  virtual std::vector<TiedParameter> tied_parameters() const = 0;
  // Returns the modules of these parameters, alias and owner: {"lm_head", "model.embed_tokens"}.
  std::vector<std::pair<std::string, std::string>> tied_modules() const;
  // Returns the stored tensors in which the family's files keep the parameter `name`. By default that is one
  // of the parameter's own name, of that without body_name(), or of an alias that tied_parameters() lists, in
  // the form that `layers` knows.
  virtual std::vector<checkpoint::StoredPart> stored_parts(const std::string& name,
                                                           const at::Tensor& parameter,
                                                           const checkpoint::LayerParts& layers) const;
  // Tells whether a file may hold the tensor `name` although the model has no use for it (buffers saved by
  // old versions, heads of other tasks).
  virtual bool ignores_tensor(const std::string& name) const;

 private:
  std::optional<at::ScalarType> hidden_type_;
  std::optional<DecodeStages> stages_;
  std::optional<double> router_aux_loss_coef_;
  double router_z_loss_coef_ = 0.0;
  ops::ChangeInPlace token_sum_;
  std::shared_ptr<nn::AdapterRows> adapter_rows_;  // null unless sequences choose among adapters

  // Begins a pass whose rows have these adapters; does nothing if there are none to choose.
  std::unique_ptr<nn::AdapterRows::Pass> choose_adapters(const std::vector<int64_t>& adapter_of_row) const;
  // Returns what `use` makes of the hidden states after the last block, [tokens, hidden_size].
  at::Tensor after_blocks(const nn::TokenBatch& batch, std::function<at::Tensor(const at::Tensor&)> use);
  // Returns the sides of the batch's documents on the model's device; null unless the model is an
  // encoder-decoder.
  std::shared_ptr<const nn::DocumentSides> sides_of(const nn::TokenBatch& batch) const;
  // Returns the hidden states after the last block, [tokens, hidden_size].
  at::Tensor hidden_states(const at::Tensor& input_ids, const at::Tensor& position_ids,
                           const at::Tensor& type_ids, nn::SequenceContext context);
  // Runs the blocks [begin, end) with the cache of `context`. Returns hidden states, [tokens, hidden_size],
  // if more blocks follow; else logits, of the tokens whose numbers `last` holds, or of all if it is
  // undefined. `input` holds ids for begin 0, and hidden states otherwise.
  at::Tensor run_cached(const at::Tensor& input, const at::Tensor& positions, const at::Tensor& last,
                        nn::SequenceContext context, int64_t begin, int64_t end);
  // Returns what the first block reads, and completes the context of all blocks.
  at::Tensor before_blocks(const at::Tensor& input_ids, const at::Tensor& position_ids,
                           const at::Tensor& type_ids, nn::SequenceContext& context);
  // Runs x, [tokens, hidden_size], through the blocks [begin, end).
  at::Tensor through_blocks(at::Tensor x, int64_t begin, int64_t end,
                            const nn::SequenceContext& context) const;
  // Lists the parameters that the backward of loss() does not read: the embedding tables, and the output
  // projection of a language model.
  std::vector<at::Tensor> forward_only_parameters() const;
  void check_ids(const at::Tensor& input_ids, int64_t num_ids) const;
  void check_batch(const nn::TokenBatch& batch) const;
  void check_length(int64_t length, const std::optional<LengthBound>& bound) const;
};

}  // namespace tessera::models
