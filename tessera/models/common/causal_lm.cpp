#include "tessera/models/common/causal_lm.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>

#include "tessera/core/error.h"
#include "tessera/core/step_clock.h"
#include "tessera/device/device.h"
#include "tessera/device/device_copy.h"
#include "tessera/models/common/document_sides.h"
#include "tessera/nn/call_hook.h"
#include "tessera/nn/whole_tokens.h"

namespace tessera::models {
namespace {

nn::SequenceContext context_of(const nn::TokenBatch& batch) {
  return {batch.document_starts, nullptr, {}, batch.part, batch.is_added};
}

at::Tensor host_ids(const std::vector<int64_t>& values) { return at::tensor(values, on_host(at::kLong)); }

}  // namespace

void CausalLM::check_length(int64_t length, const std::optional<LengthBound>& bound) const {
  if (!bound.has_value() || length <= bound->tokens) return;
  throw Error(ErrorKind::Model, "LENGTH", "document too long for this model: " + bound->reason)
      .at(config().source_file)
      .got(std::to_string(length) + " tokens")
      .need("at most " + std::to_string(bound->tokens))
      .hint("shorten it, or leave out its oldest part");
}

void CausalLM::check_batch(const nn::TokenBatch& batch) const {
  check_ids(batch.input_ids, config().vocab_size + num_virtual_tokens());
  const std::vector<int64_t>& starts = batch.document_starts;
  TESSERA_ASSERT(!starts.empty() && starts.front() == 0, "document starts");
  int64_t tokens = batch.part.has_value() ? 0 : starts.back();
  for (const nn::TokenRun& run : batch.part.value_or(std::vector<nn::TokenRun>())) {
    TESSERA_ASSERT(run.first >= 0 && run.first + run.count <= starts.back(), "tokens of a line");
    tokens += run.count;
  }
  TESSERA_ASSERT(batch.input_ids.size(0) == tokens, "document starts");
  for (size_t i = 1; i < starts.size(); ++i) {
    check_length(starts[i] - starts[i - 1], config().document_bound);
  }
}

void CausalLM::check_ids(const at::Tensor& input_ids, int64_t num_ids) const {
  if (input_ids.numel() == 0) return;
  const auto [low, high] = at::aminmax(input_ids);
  const int64_t worst = low.item<int64_t>() < 0 ? low.item<int64_t>() : high.item<int64_t>();
  if (worst < 0 || worst >= num_ids) {
    throw Error(ErrorKind::Data, "TOKEN-ID", "token id outside the model's vocabulary")
        .got(std::to_string(worst))
        .need("0 to " + std::to_string(config().vocab_size - 1))
        .hint("the tokenizer must belong to the model");
  }
}

std::shared_ptr<const nn::DocumentSides> CausalLM::sides_of(const nn::TokenBatch& batch) const {
  return config().is_encoder_decoder ? document_sides(batch, device()) : nullptr;
}

at::Tensor CausalLM::add_inputs(nn::SequenceContext&, const at::Tensor&, const at::Tensor& x) const {
  return x;
}

void CausalLM::add_positions(nn::SequenceContext&, const at::Tensor&) const {}

at::Tensor CausalLM::before_blocks(const at::Tensor& input_ids, const at::Tensor& position_ids,
                                   const at::Tensor& type_ids, nn::SequenceContext& context) {
  return add_inputs(context, input_ids, embed(input_ids, position_ids, type_ids));
}

int64_t CausalLM::num_virtual_tokens() const {
  const auto& rows = embeddings().front()->virtual_rows();
  return rows == nullptr ? 0 : rows->count();
}

at::Device CausalLM::device() const { return head().weight().device(); }

at::Tensor CausalLM::hidden_states(const at::Tensor& input_ids, const at::Tensor& position_ids,
                                   const at::Tensor& type_ids, nn::SequenceContext context) {
  add_positions(context, position_ids);
  const at::Tensor x = before_blocks(input_ids, position_ids, type_ids, context);
  return through_blocks(x, 0, static_cast<int64_t>(blocks().size()), context);
}

at::Tensor CausalLM::through_blocks(at::Tensor x, int64_t begin, int64_t end,
                                    const nn::SequenceContext& context) const {
  const SectionScope section(StepSection::Layers);
  StepClock::of_this_thread().count_layers(end - begin);
  for (int64_t i = begin; i < end; ++i) x = nn::call(*blocks()[i], x, context);
  return x;
}

std::vector<at::Tensor> CausalLM::forward_only_parameters() const {
  std::vector<at::Tensor> parameters;
  if (!head().backward_reads_weight()) parameters.push_back(head().weight());
  for (const auto& embedding : embeddings()) parameters.push_back(embedding->weight);
  return parameters;
}

nn::ParameterRoles CausalLM::parameter_roles() const {
  const auto tables = embeddings();
  nn::ParameterRoles roles;
  for (const auto& [layer_name, layer] : nn::named_layers(*this)) {
    for (const auto& parameter : layer->named_parameters(/*recurse=*/false)) {
      nn::ParameterRole& role = roles[layer_name + "." + parameter.key()];
      const auto table = std::ranges::find(tables, layer);
      if (table != tables.end()) {
        const bool is_named = layer->role() != nn::ParameterRole::Other;
        role = table == tables.begin() ? nn::ParameterRole::Embedding
               : is_named              ? layer->role()
                                       : nn::ParameterRole::Positions;
      } else if (parameter.value().is_same(head().weight())) {
        role = config().classification ? nn::ParameterRole::Classifier : nn::ParameterRole::OutputHead;
      } else {
        const bool is_plain = layer->role() == nn::ParameterRole::Other;
        role = is_plain && parameter.key() == "bias" ? nn::ParameterRole::Bias : layer->role();
      }
    }
  }
  return roles;
}

at::Tensor CausalLM::loss(const nn::TokenBatch& batch) {
  return run_blocks(batch, 0, static_cast<int64_t>(blocks().size()));
}

nn::RouterLossWeights CausalLM::router_loss_weights() const {
  if (config().num_experts == 0) return {};
  return {router_aux_loss_coef_.value_or(config().router_aux_loss_coef), router_z_loss_coef_};
}

void CausalLM::set_embedding_noise(double alpha) { embeddings().front()->set_noise(alpha); }

int64_t CausalLM::carried_rows() const {
  if (!router_loss_weights().is_any()) return 0;
  return nn::RouterBalance::carried_rows(config().num_experts, config().hidden_size, hidden_type());
}

// [Note: router sums in a forward] The router losses are functions of sums over all sparse layers and all
// tokens of the micro-batch, which is known only after the last block, and which are spread over the stages
// of a pipeline and the ranks of context parallelism. So the layers only add to the sums of one
// RouterBalance, which the context carries through all blocks. A stage takes the sums of the stages before it
// out of extra rows of its input and hands them on in extra rows of its output (carried_rows()). The last
// stage adds the label count, sums over the ranks that hold the other tokens (token_sum_), and only then
// makes the losses from the sums. Their gradients go the same way back: each layer takes its own in the
// backward, when the complete sums have come back to it.
at::Tensor CausalLM::run_blocks(const nn::TokenBatch& batch, int64_t begin, int64_t end,
                                const at::Tensor& hidden) {
  TESSERA_ASSERT(batch.labels.defined(), "a loss needs labels");
  // The ids are checked while they are still on the host, so that the check waits for no device.
  check_batch(batch);
  const nn::ForwardOnlyScope forward_only(forward_only_parameters());
  const at::Tensor positions = copy_to(batch.position_ids, device());
  const at::Tensor types = batch.type_ids.defined() ? copy_to(batch.type_ids, device()) : at::Tensor();
  const at::Tensor first = begin == 0 ? copy_to(batch.input_ids, device()) : hidden;
  const auto sides = sides_of(batch);
  // Everything from the embedding to the loss runs inside the model's own hook, which keeps the parameters of
  // the root (embedding, final norm, output projection) gathered meanwhile. A hook may run the forward again
  // in the backward, hence the copies in the capture and a new context with new sums in every run.
  return nn::call_hooked(*this, first, [=, this](const at::Tensor& input) {
    nn::SequenceContext context = context_of(batch);
    context.sides = sides;
    add_positions(context, positions);
    if (context.is_added.defined()) context.is_added = copy_to(context.is_added, device());
    if (const nn::RouterLossWeights weights = router_loss_weights(); weights.is_any()) {
      context.router_balance =
          c10::make_intrusive<nn::RouterBalance>(config().num_experts, weights, device());
    }
    // See [Note: router sums in a forward].
    nn::RouterBalance* const balance = context.router_balance.get();
    at::Tensor x = begin == 0 ? before_blocks(input, positions, types, context) : input;
    if (begin > 0 && balance != nullptr) x = balance->take_sums(x);
    const at::Tensor y = through_blocks(x, begin, end, context);
    if (end < static_cast<int64_t>(blocks().size())) return balance == nullptr ? y : balance->with_sums(y);
    const at::Tensor loss = head().loss(y, batch);
    if (balance == nullptr) return loss;
    balance->count_labels(batch.labels);  // before the sum over ranks, each of which has some of the labels
    if (token_sum_) token_sum_(balance->sums());
    return balance->add_loss(loss, batch.labels, batch.router_values);
  });
}

at::Tensor CausalLM::after_blocks(const nn::TokenBatch& batch,
                                  std::function<at::Tensor(const at::Tensor&)> use) {
  check_batch(batch);
  const at::Tensor there = copy_to(batch.input_ids, device()),
                   positions = copy_to(batch.position_ids, device()),
                   types = batch.type_ids.defined() ? copy_to(batch.type_ids, device()) : at::Tensor();
  const auto sides = sides_of(batch);
  return nn::call_hooked(*this, there,
                         [this, batch, positions, types, sides, use](const at::Tensor& input_ids) {
                           nn::SequenceContext context = context_of(batch);
                           context.sides = sides;
                           return use(hidden_states(input_ids, positions, types, std::move(context)));
                         });
}

at::Tensor CausalLM::logits(const nn::TokenBatch& batch) {
  return after_blocks(batch, [this](const at::Tensor& x) { return head().logits(x); });
}

std::unique_ptr<nn::AdapterRows::Pass> CausalLM::choose_adapters(
    const std::vector<int64_t>& adapter_of_row) const {
  if (adapter_rows_ == nullptr) return nullptr;
  return std::make_unique<nn::AdapterRows::Pass>(*adapter_rows_, adapter_of_row, device());
}

at::Tensor CausalLM::last_hidden_states(const nn::TokenBatch& batch, int64_t adapter) {
  const auto pass =
      choose_adapters(std::vector<int64_t>(static_cast<size_t>(batch.input_ids.numel()), adapter));
  return after_blocks(batch, [this](const at::Tensor& x) { return head().normed(x); });
}

at::Tensor CausalLM::next_logits(nn::KvCache& cache, const std::vector<NewTokens>& batch) {
  TESSERA_ASSERT(!batch.empty(), "next_logits takes at least one sequence");
  // Inference mode makes each of the some hundred small operations of a step cheaper than NoGradGuard does.
  const c10::InferenceMode inference;
  check_new_tokens(cache, batch);
  std::vector<int64_t> ids, sequences, starts = {0}, last, adapters;
  std::vector<SidesOfDocument> documents;  // of an encoder-decoder
  const int64_t virtual_tokens = num_virtual_tokens();
  for (const NewTokens& part : batch) {
    const bool is_first = cache.length(part.sequence) == 0,
               has_start = is_first && config().is_encoder_decoder;
    const int64_t before = is_first ? virtual_tokens : 0;
    for (int64_t i = 0; i < before; ++i) ids.push_back(config().vocab_size + i);
    const int64_t added = before + std::ssize(part.ids) + (has_start ? 1 : 0);
    ids.insert(ids.end(), part.ids.begin(), part.ids.end());
    if (has_start) ids.push_back(config().decoder_start_token_id);
    const int64_t border = starts.back() + (has_start ? std::ssize(part.ids) : 0);
    documents.push_back({starts.back(), border, border, starts.back() + added});
    sequences.push_back(part.sequence);
    starts.push_back(starts.back() + added);
    adapters.insert(adapters.end(), static_cast<size_t>(added), part.adapter);
    TESSERA_ASSERT(part.num_logits >= 1 && part.num_logits <= added, "logits after some of the new tokens");
    for (int64_t i = part.num_logits; i > 0; --i) last.push_back(starts.back() - i);
  }
  const at::Tensor input_ids = host_ids(ids);
  // Takes the pages that the new tokens need. The cache's lengths change only in finish(): if anything below
  // throws, the pages go back and the sequences are what they were.
  nn::CacheStep step(cache, sequences, starts);
  const at::Tensor position_ids = copy_to(host_ids(step.positions()), device());
  nn::SequenceContext context{starts, &step, {}, {}, {}};
  if (config().is_encoder_decoder) context.sides = document_sides(documents, device());
  const auto pass = choose_adapters(adapters);
  const auto num_blocks = static_cast<int64_t>(blocks().size());
  const auto run = [&](const DecodeStages::Blocks& stage, const at::Tensor& before) {
    const at::Tensor fed = stage.begin == 0 ? copy_to(input_ids, device()) : before;
    // Few tokens need logits, often only the last one of each sequence. With one new token each that is every
    // row.
    const bool are_chosen = last.size() < ids.size() && stage.end == num_blocks;
    return run_cached(fed, position_ids, are_chosen ? copy_to(host_ids(last), device()) : at::Tensor(),
                      context, stage.begin, stage.end);
  };
  const auto run_stage = [&](size_t stage, const at::Tensor& before) {
    return run(stages_->own[stage], before);
  };
  const at::Tensor logits = stages_ ? stages_->between(run_stage, std::ssize(ids), std::ssize(last))
                                    : run({0, num_blocks}, at::Tensor());
  step.finish();
  return logits;
}

at::Tensor CausalLM::run_cached(const at::Tensor& input, const at::Tensor& positions, const at::Tensor& last,
                                nn::SequenceContext context, int64_t begin, int64_t end) {
  const nn::WholeTokensScope whole_tokens;
  return nn::call_hooked(*this, input, [&](const at::Tensor& x) {
    add_positions(context, positions);
    const at::Tensor first = begin == 0 ? before_blocks(x, positions, {}, context) : x;
    at::Tensor hidden = through_blocks(first, begin, end, context);
    if (end < static_cast<int64_t>(blocks().size())) return hidden;
    if (last.defined()) hidden = hidden.index_select(0, last);
    return head().logits(hidden);
  });
}

at::Tensor CausalLM::decode(const at::Tensor& ids, const at::Tensor& positions, const nn::CacheView& cache) {
  // Each row is a document of one token: starts 0, 1, 2, ...
  std::vector<int64_t> starts(static_cast<size_t>(ids.size(0)) + 1);
  std::iota(starts.begin(), starts.end(), 0);
  return run_cached(ids, positions, {}, {std::move(starts), &cache, {}, {}, {}}, 0,
                    static_cast<int64_t>(blocks().size()));
}

bool CausalLM::decodes_alone() const {
  if (stages_ || adapter_rows_ != nullptr || head().parallel() != nullptr || config().is_encoder_decoder)
    return false;
  const auto all = modules();
  const bool is_shared = std::any_of(all.begin(), all.end(), [](const auto& module) {
    const auto* layer = dynamic_cast<const nn::Layer*>(module.get());
    return nn::find_call_hook(*module) != nullptr || (layer != nullptr && layer->parallel() != nullptr);
  });
  return !is_shared && !keeps_states() && std::ranges::all_of(blocks(), [this](const auto& block) {
    return block->sparse_mlp == nullptr || block->sparse_mlp->never_reads(hidden_type());
  });
}

bool CausalLM::keeps_states() const {
  return std::ranges::any_of(blocks(), [](const auto& block) { return block->attention == nullptr; });
}

void CausalLM::check_new_tokens(const nn::KvCache& cache, const std::vector<NewTokens>& batch) const {
  std::vector<int64_t> ids;
  for (const NewTokens& part : batch) {
    TESSERA_ASSERT(!part.ids.empty(), "next_logits takes at least one token of every sequence");
    const int64_t before = cache.length(part.sequence);
    check_length(before + (before == 0 ? num_virtual_tokens() : 0) + std::ssize(part.ids),
                 config().generation_bound);
    ids.insert(ids.end(), part.ids.begin(), part.ids.end());
  }
  check_ids(host_ids(ids), config().vocab_size);
}

void CausalLM::check_continues_texts(const std::string& use) const {
  if (config().is_masked_lm) {
    throw Error(ErrorKind::Model, "TASK",
                use + " needs a model that continues a text, and this one tells masked tokens")
        .in(config().source_file + ": key 'architectures'");
  }
  if (!config().is_encoder_decoder) return;
  throw Error(ErrorKind::Model, "TASK",
              use + " needs a model that continues a text, and this one makes targets of sources")
      .in(config().source_file + ": key 'model_type'")
      .got(config().model_type)
      .hint("tessera generate makes targets");
}

void CausalLM::check_prompt(const std::vector<int64_t>& ids) const {
  check_length(num_virtual_tokens() + std::ssize(ids), config().generation_bound);
  check_ids(host_ids(ids), config().vocab_size);
}

nn::KvCacheOptions CausalLM::cache_options() const {
  if (config().is_masked_lm) {
    throw Error(ErrorKind::Model, "TASK", "the model tells masked tokens, and generates nothing")
        .in(config().source_file + ": key 'architectures'");
  }
  if (config().classification) {
    throw Error(ErrorKind::Model, "TASK", "the model is a classifier, which generates nothing")
        .in(config().source_file + ": key 'architectures'")
        .hint("tessera classify tells the labels of texts");
  }
  // Between the stages of a rank lie blocks of others.
  const int64_t begin = stages_ ? stages_->own.front().begin : 0,
                end = stages_ ? stages_->own.back().end : std::ssize(blocks());
  nn::KvCacheOptions options{.dtype = hidden_type(), .device = device()};
  for (int64_t i = 0; i < end; ++i) {
    const nn::CachedHeads heads = blocks()[static_cast<size_t>(i)]->cached_heads();
    // A block of another stage has the parameters of no head, but its heads have a size all the same.
    if (heads.head_dim == 0) continue;
    if (i < begin) {
      ++options.first_layer;
      continue;
    }
    // A page holds all layers of its tokens, so it is kept for the layer that looks back farthest: the
    // largest window, or 0 (everything) if any layer has none.
    const bool sees_all = heads.window == 0 || (options.num_layers > 0 && options.window == 0);
    options.window = sees_all ? 0 : std::max(options.window, heads.window);
    options.num_kv_heads = heads.num_kv_heads;
    options.head_dim = heads.head_dim;
    options.heads.push_back(heads);
    ++options.num_layers;
  }
  const bool are_equal = std::ranges::all_of(options.heads, [&](const nn::CachedHeads& heads) {
    return heads.num_kv_heads == options.num_kv_heads && heads.head_dim == options.head_dim;
  });
  if (are_equal) options.heads.clear();
  // A stage without attention counts tokens all the same, in the smallest pages.
  if (options.num_layers == 0) options.num_layers = options.num_kv_heads = options.head_dim = 1;
  return options;
}

std::vector<checkpoint::StoredPart> CausalLM::stored_parts(const std::string& name,
                                                           const at::Tensor& parameter,
                                                           const checkpoint::LayerParts& layers) const {
  std::vector<std::string> aliases;
  for (const TiedParameter& tied : tied_parameters()) {
    if (tied.owner == name) aliases.push_back(tied.alias);
  }
  const std::string body = body_name() + ".";
  auto parts = layers.of(parameter, name, std::move(aliases));
  for (checkpoint::StoredPart& part : parts) {
    if (part.name.starts_with(body)) part.aliases.insert(part.aliases.begin(), part.name.substr(body.size()));
  }
  return parts;
}

std::vector<std::pair<std::string, std::string>> CausalLM::tied_modules() const {
  const auto module_of = [](const std::string& name) { return name.substr(0, name.rfind('.')); };
  std::vector<std::pair<std::string, std::string>> modules;
  for (const TiedParameter& tied : tied_parameters())
    modules.emplace_back(module_of(tied.alias), module_of(tied.owner));
  return modules;
}

bool CausalLM::ignores_tensor(const std::string& name) const {
  // Files of a model that was made for another task have the head of that.
  const bool takes_new_head = config().classification || config().is_masked_lm;
  const bool is_other_head = takes_new_head && !name.starts_with(body_name() + ".");
  return is_other_head || name.ends_with(".rotary_emb.inv_freq");
}

}  // namespace tessera::models
