#include "tessera/measure/measure_parts.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include "tessera/core/process_stats.h"
#include "tessera/device/device.h"
#include "tessera/device/host_memory.h"
#include "tessera/models/common/pipeline.h"
#include "tessera/nn/materialize.h"

namespace tessera::measure {
namespace {

// While it lives, these parameters have memory with random values, in the dtype of the computation.
class FilledParameters {
 public:
  FilledParameters(const std::vector<at::Tensor>& parameters, const MeasureOptions& options) {
    for (const at::Tensor& parameter : parameters) {
      if (!parameter.is_meta()) continue;  // tied to one that has been filled
      before_.emplace_back(parameter, parameter.scalar_type());
      at::Tensor filled = parameter;
      const auto like = parameter.options().dtype(options.dtype).requires_grad(false);
      nn::materialize(filled, at::empty(parameter.sizes(), like.device(options.device)).normal_(0.0, 0.02));
    }
  }
  FilledParameters(const FilledParameters&) = delete;
  FilledParameters& operator=(const FilledParameters&) = delete;
  ~FilledParameters() {
    for (auto& [parameter, dtype] : before_) {
      const auto like = parameter.options().dtype(dtype).requires_grad(false);
      nn::materialize(parameter, at::empty(parameter.sizes(), like.device(at::kMeta)));
    }
  }

 private:
  std::vector<std::pair<at::Tensor, at::ScalarType>> before_;
};

// Returns the least seconds of a few runs; a first run warms up and does not count.
double seconds_of(const std::function<void()>& run) {
  constexpr int kRuns = 5;
  constexpr double kEnough = 1.0;
  run();
  double least = std::numeric_limits<double>::infinity();
  const Timer all;
  for (int i = 0; i < kRuns && (i == 0 || all.seconds() < kEnough); ++i) {
    const Timer timer;
    run();
    least = std::min(least, timer.seconds());
  }
  return least;
}

class Measurement {
 public:
  Measurement(models::CausalLM& model, const MeasureOptions& options)
      : model_(model), options_(options), tokens_(options.documents * options.document_tokens) {
    const auto ids = [&] { return at::randint(model.config().vocab_size, {tokens_}, on_host(at::kLong)); };
    batch_.input_ids = ids();
    batch_.labels = ids();
    if (const auto& classes = model.config().classification) {
      batch_.labels.zero_();
      batch_.targets = at::zeros({2, classes->target_width()}, on_host(at::kDouble));
    }
    batch_.position_ids = at::arange(options.document_tokens, on_host(at::kLong)).repeat({options.documents});
    for (int64_t start = 0; start <= tokens_; start += options.document_tokens)
      context_.document_starts.push_back(start);
    if (!options.recompute_mlps) return;
    for (const auto& block : model.blocks()) block->recompute_hidden();
  }

  parallel::PartCosts all() {
    const parallel::PipelineParts parts = models::pipeline_parts(model_);
    // The head comes first, because its weight says which dtype hidden states have.
    const FilledParameters head(parts.last, options_);
    model_.add_positions(context_, batch_.position_ids.to(options_.device));
    parallel::PartCosts costs;
    // A part takes the gradient of its input only where something before it trains.
    bool trains_before = false;
    {
      const FilledParameters first(parts.first, options_);
      costs.first = seconds_of([&] {
        differentiate(
            model_.embed(batch_.input_ids.to(options_.device), batch_.position_ids.to(options_.device)));
      });
      trains_before = trains(parts.first);
    }
    std::map<std::string, double> kinds;
    for (size_t i = 0; i < parts.blocks.size(); ++i) {
      const std::string kind = kind_of(i) + (trains_before ? "b" : "");
      auto found = kinds.find(kind);
      if (found == kinds.end()) found = kinds.emplace(kind, of_block(i, trains_before)).first;
      costs.blocks.push_back(found->second);
      trains_before = trains_before || trains(parts.blocks[i]->parameters());
    }
    const at::Tensor x = hidden();
    costs.last = seconds_of(
        [&] { differentiate(model_.head().loss(x.detach().requires_grad_(trains_before), batch_)); });
    return costs;
  }

 private:
  static bool trains(const std::vector<at::Tensor>& parameters) {
    return std::ranges::any_of(parameters, [](const at::Tensor& p) { return p.requires_grad(); });
  }
  bool is_recomputed(size_t block) const {
    const int64_t every = options_.checkpoint_every;
    return every > 0 && static_cast<int64_t>(block + 1) % every == 0;
  }

  // Returns a text that is equal for blocks that take the same time.
  std::string kind_of(size_t index) const {
    const nn::TransformerBlock& block = *model_.blocks()[index];
    std::string kind = std::to_string(block.cached_heads().window) + (is_recomputed(index) ? "r" : "");
    for (const auto& entry : block.named_parameters()) {
      kind += ";" + entry.key() + (entry.value().requires_grad() ? "*" : "");
      for (const int64_t size : entry.value().sizes()) kind += "," + std::to_string(size);
    }
    return kind;
  }

  at::Tensor hidden() const {
    return at::empty({tokens_, model_.config().hidden_size},
                     at::TensorOptions(options_.device).dtype(model_.hidden_type()))
        .normal_();
  }

  void differentiate(const at::Tensor& y) const {
    if (y.requires_grad()) torch::autograd::backward({y}, {at::ones_like(y)});
    // A device computes later than the host submits: reading a value waits for it.
    if (!is_on_host(y)) (void)y.flatten()[0].item<double>();
  }

  double of_block(size_t index, bool has_gradient) {
    nn::TransformerBlock& block = *model_.blocks()[index];
    const FilledParameters filled(block.parameters(), options_);
    const at::Tensor x = hidden();
    const auto forward = [&] { return block.forward(x.detach().requires_grad_(has_gradient), context_); };
    const double whole = seconds_of([&] { differentiate(forward()); });
    if (!is_recomputed(index)) return whole;
    const at::NoGradGuard no_grad;
    return whole + seconds_of([&] { (void)forward(); });
  }

  models::CausalLM& model_;
  const MeasureOptions& options_;
  const int64_t tokens_;
  nn::TokenBatch batch_;
  nn::SequenceContext context_;
};

}  // namespace

parallel::PartCosts measure_parts(models::CausalLM& model, const MeasureOptions& options) {
  const bool was_training = model.is_training();
  model.eval();  // switches dropout off
  parallel::PartCosts costs = Measurement(model, options).all();
  model.train(was_training);
  return costs;
}

}  // namespace tessera::measure
