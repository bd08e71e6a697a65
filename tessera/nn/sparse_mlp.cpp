#include "tessera/nn/sparse_mlp.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <limits>
#include <numeric>
#include <optional>
#include <tuple>

#include <ATen/ATen.h>

#include "tessera/core/error.h"
#include "tessera/core/trace.h"
#include "tessera/device/host_memory.h"
#include "tessera/nn/grouped_experts.h"
#include "tessera/nn/random_scope.h"
#include "tessera/nn/unscaled_norm.h"
#include "tessera/ops/support.h"
#include "tessera/ops/take_rows.h"

namespace tessera::nn {
namespace {

class ExpertsHere : public ExpertCore {
 public:
  at::Tensor run(const at::Tensor& rows, const at::Tensor& ends, const Experts& experts) const override {
    return runs_grouped(rows, experts) ? run_grouped(rows, ends, experts)
                                       : run_experts(rows, row_counts(ends, rows.size(0)), experts);
  }
};

// Says where files hold the weights of the experts, whose parameters are named as
// "experts.0.gate_up_proj.weight" is, behind the name of the MLP. `has_name`: files have that name, too.
void stack_experts(const SparseMLPOptions::Stacks& stacks, const Experts& experts, bool has_name) {
  const int names = has_name ? 4 : 5;
  const auto count = std::ssize(experts);
  for (int64_t e = 0; e < count; ++e) {
    const MLP& expert = *experts[static_cast<size_t>(e)];
    expert.gate_up_proj->set_stored_stack({e, count, stacks.gate_up, stacks.gate_up_bias, names});
    expert.down_proj->set_stored_stack({e, count, stacks.down, stacks.down_bias, names});
    if (!stacks.are_transposed) continue;
    for (const auto& layer : {expert.gate_up_proj, expert.down_proj}) layer->set_stored_transposed();
  }
}

}  // namespace

std::vector<int64_t> row_counts(const at::Tensor& ends, int64_t num_rows) {
  if (ends.is_meta()) {
    const int64_t experts = ends.numel();
    std::vector<int64_t> counts;
    for (int64_t e = 0; e < experts; ++e)
      counts.push_back((e + 1) * num_rows / experts - e * num_rows / experts);
    return counts;
  }
  const at::Tensor here = ends.to(kHost);
  const auto values = host_span<const int32_t>(here);
  std::vector<int64_t> counts(values.size());
  std::adjacent_difference(values.begin(), values.end(), counts.begin());
  return counts;
}

at::Tensor run_experts(const at::Tensor& rows, const std::vector<int64_t>& counts, const Experts& experts) {
  TESSERA_ASSERT(counts.size() == experts.size(), "one number of rows for each expert");
  const std::vector<at::Tensor> parts = rows.split_with_sizes(counts);
  const RandomPlace* const place = RandomScope::current();
  std::vector<at::Tensor> results;
  int64_t first = 0;
  for (size_t e = 0; e < experts.size(); ++e) {
    std::optional<RandomScope> scope;
    if (place != nullptr && place->rows.defined()) scope.emplace(place_of_rows(*place, first, counts[e]));
    first += counts[e];
    if (counts[e] > 0 || at::GradMode::is_enabled()) results.push_back(experts[e]->forward(parts[e]));
  }
  return results.empty() ? rows : at::cat(results);
}

SparseMLP::SparseMLP(const SparseMLPOptions& o, at::ScalarType dtype)
    : options_(o), core_(std::make_shared<ExpertsHere>()) {
  gate = std::make_shared<Linear>(o.expert.hidden_size, o.num_experts, o.gate_bias, dtype);
  gate->refuse_adapter("is a router; list it in lora_modules_to_save to train it whole");
  gate->set_role(ParameterRole::Router);
  if (!o.input_norm.empty()) input_norm = make_norm(o.expert.hidden_size, o.norm, dtype);
  const auto scales = [&](const std::string& name, int64_t count) {
    if (name.empty()) return std::shared_ptr<BareValues>();
    auto made = std::make_shared<BareValues>(count, InitialValue::ones(), dtype);
    made->set_role(ParameterRole::Router);
    return made;
  };
  input_scale = scales(o.input_scale, o.expert.hidden_size);
  expert_scale = scales(o.expert_scale, o.num_experts);
  if (input_scale != nullptr) routed_norm_ = std::make_shared<UnscaledNorm>(o.norm.eps);
  if (!o.is_beside) register_in(*this);
  // A bare module serves as the list, since only the names of its children matter.
  const auto list = register_module("experts", std::make_shared<torch::nn::Module>("experts"));
  for (int64_t e = 0; e < o.num_experts; ++e) {
    experts.push_back(list->register_module(std::to_string(e), std::make_shared<MLP>(o.expert, dtype)));
  }
  for (const auto& [name, layer] : named_layers(*list)) layer->set_role(ParameterRole::Expert);
  if (o.stacks) stack_experts(*o.stacks, experts, !o.is_beside);
  if (o.router.has_correction) {
    torch::nn::Module& owner = o.correction.empty() ? static_cast<torch::nn::Module&>(*gate) : *this;
    correction = owner.register_parameter(
        o.correction.empty() ? "e_score_correction_bias" : o.correction,
        at::empty({o.num_experts}, at::TensorOptions().dtype(dtype).device(at::kMeta)),
        /*requires_grad=*/false);
  }
  if (!o.shared) return;
  shared_expert = register_module(o.shared_name, std::make_shared<MLP>(*o.shared, dtype));
  if (!o.has_shared_gate) return;
  shared_expert_gate =
      register_module("shared_expert_gate", std::make_shared<Linear>(o.expert.hidden_size, 1, false, dtype));
  shared_expert_gate->refuse_adapter("has one output; list it in lora_modules_to_save to train it whole");
}

void SparseMLP::register_in(torch::nn::Module& parent) {
  register_below(parent, options_.gate, gate);
  if (input_norm != nullptr) register_below(parent, options_.input_norm, input_norm);
  if (input_scale != nullptr) register_below(parent, options_.input_scale, input_scale);
  if (expert_scale != nullptr) register_below(parent, options_.expert_scale, expert_scale);
}

bool SparseMLP::drops() const {
  return std::ranges::any_of(experts, [](const auto& expert) {
    return std::ranges::any_of(
        std::initializer_list<const Linear*>{expert->gate_proj.get(), expert->up_proj.get(),
                                             expert->gate_up_proj.get(), expert->down_proj.get()},
        [](const Linear* linear) {
          return linear != nullptr && linear->adapter() != nullptr && linear->adapter()->drops();
        });
  });
}

void SparseMLP::recompute_hidden() {
  for (const auto& expert : experts) expert->recompute_hidden();
  if (shared_expert != nullptr) shared_expert->recompute_hidden();
}

bool SparseMLP::never_reads(at::ScalarType type) const {
  const at::Tensor& weight = experts.front()->down_proj->weight;
  return dynamic_cast<const ExpertsHere*>(core_.get()) != nullptr && weight.scalar_type() == type &&
         runs_grouped(weight.narrow(0, 0, 1), experts);
}

at::Tensor SparseMLP::forward(const ops::Activation& x, const SequenceContext& context) {
  return run(x, [&](const ops::Activation& in) {
    const ops::Activation read = input_norm == nullptr ? in : input_norm->add_and_norm(in.value()).normed;
    const at::Tensor mixed = mix(in, read, context);
    if (shared_expert == nullptr) return mixed;
    if (shared_expert_gate == nullptr) return mixed + shared_expert->forward(read);
    return mixed + at::sigmoid(shared_expert_gate->forward(read)) * shared_expert->forward(read);
  });
}

at::Tensor SparseMLP::choose(const at::Tensor& scores) const {
  const RouterOptions& router = options_.router;
  at::Tensor ranked = scores.detach();
  if (correction.defined()) ranked = ranked + correction.to(ranked.scalar_type());
  if (router.groups > router.groups_per_token) {
    const at::Tensor in_groups =
        ranked.view({ranked.size(0), router.groups, options_.num_experts / router.groups});
    const at::Tensor of_groups = std::get<0>(in_groups.topk(router.group_top, 2)).sum(2);
    const at::Tensor best = std::get<1>(of_groups.topk(router.groups_per_token, 1));
    const at::Tensor is_out = at::ones_like(of_groups, at::kBool).scatter_(1, best, false);
    ranked = in_groups.masked_fill(is_out.unsqueeze(2), -std::numeric_limits<double>::infinity())
                 .view(ranked.sizes());
  }
  // A token's experts are sorted by number, so that their results are always added in the same order.
  return std::get<0>(std::get<1>(ranked.topk(options_.experts_per_token, 1)).sort(/*dim=*/1));
}

ops::Activation SparseMLP::routed(const ops::Activation& x) const {
  if (input_scale == nullptr) return x;
  const double root = std::sqrt(static_cast<double>(options_.expert.hidden_size));
  return routed_norm_->forward(x.value()) * input_scale->weight * (1.0 / root);
}

SparseMLP::Routes SparseMLP::route(const ops::Activation& x, const SequenceContext& context) const {
  const RouterOptions& router = options_.router;
  RouterBalance* const balance = context.router_balance.get();
  const double share = parallel() == nullptr ? 1.0 : parallel()->share();
  at::Tensor logits = gate->forward(routed(x));
  if (balance != nullptr) logits = balance->add_logits(logits, context.is_added, share);
  const at::ScalarType exact = ops::compute_type(logits.scalar_type());
  at::Tensor scores = router.is_sigmoid ? at::sigmoid(logits.to(exact)) : at::softmax(logits, 1, exact);
  const at::Tensor chosen = choose(scores);
  if (balance != nullptr && router.is_sigmoid) {
    // The balance is that of the scores as probabilities.
    const at::Tensor total = scores.sum(1, /*keepdim=*/true);
    scores = balance->add_layer(scores / total, chosen, context.is_added, share) * total;
  } else if (balance != nullptr) {
    scores = balance->add_layer(scores, chosen, context.is_added, share);
  }
  at::Tensor weights = scores.gather(1, chosen);
  if (router.normalises) weights = weights / (weights.sum(1, /*keepdim=*/true) + router.sum_eps);
  if (router.scale != 1.0) weights = weights * router.scale;
  if (expert_scale != nullptr) {
    const at::Tensor scales = expert_scale->weight.index_select(0, chosen.flatten()).view(chosen.sizes());
    weights = weights * scales.to(weights.scalar_type());
  }
  return {chosen, weights};
}

at::Tensor SparseMLP::mix(const ops::Activation& x, const ops::Activation& read,
                          const SequenceContext& context) const {
  const trace::Scope trace_scope("sparse_mlp");
  const auto [chosen, weights] = route(x, context);
  const int64_t tokens = chosen.size(0), copies = options_.experts_per_token;

  // Row i of the sorted rows is copy order[i] % copies of token order[i] / copies; copy j of a token lies in
  // row places[token * copies + j]. The sort is stable, so each expert's rows keep the order of the tokens.
  const at::Tensor by_token = chosen.flatten();
  const at::Tensor order = by_token.argsort(/*stable=*/true, 0, /*descending=*/false),
                   places = order.argsort();
  // at::bincount() would read the largest number from the device, and the host would wait.
  const auto int_options = by_token.options().dtype(at::kInt);
  const at::Tensor counts = at::zeros({options_.num_experts}, int_options)
                                .scatter_add_(0, by_token, at::ones(by_token.sizes(), int_options)),
                   ends = counts.cumsum(0, at::kInt);
  const at::Tensor tokens_of_rows = order.floor_divide(copies);
  at::Tensor rows = ops::take_rows(read.value(), tokens_of_rows, places, copies);
  const at::Tensor scales = weights.to(rows.scalar_type());
  if (options_.router.scales_inputs) rows = rows * scales.flatten().index_select(0, order).unsqueeze(1);
  std::optional<RandomScope> scope;
  if (const RandomPlace* place = RandomScope::current(); place != nullptr && drops())
    scope.emplace(place_of_rows(*place, tokens_of_rows, tokens));
  const at::Tensor results = ops::take_rows(core_->run(rows, ends, experts), places, order, 1);
  const at::Tensor of_token = results.view({tokens, copies, results.size(1)});
  return (options_.router.scales_inputs ? of_token : of_token * scales.unsqueeze(2)).sum(1);
}

}  // namespace tessera::nn
