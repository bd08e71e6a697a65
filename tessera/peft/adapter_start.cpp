#include "tessera/peft/adapter_start.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>

#include "tessera/core/error.h"
#include "tessera/core/rng.h"
#include "tessera/device/host_memory.h"
#include "tessera/nn/linear.h"
#include "tessera/parallel/box_part.h"
#include "tessera/peft/dora.h"
#include "tessera/peft/layer_options.h"
#include "tessera/peft/low_rank.h"

namespace tessera::peft {
namespace {

constexpr const char* kTokenRows = ".token_adapter.trainable_tokens_delta";
constexpr const char* kPromptRows = ".prompt_adapter.weight";
constexpr const char* kMagnitude = ".lora_magnitude_vector.weight";
// The factors, and whether each is A or B.
constexpr std::pair<const char*, bool> kFactors[] = {
    {kFactorA, true}, {".lora_A_start.weight", true}, {kFactorB, false}, {".lora_B_start.weight", false}};
// Elements of a weight that are read at once.
constexpr int64_t kPieceElements = int64_t{1} << 20;

class AdapterStart : public checkpoint::ParameterSource {
 public:
  AdapterStart(std::shared_ptr<const checkpoint::ParameterSource> values, const torch::nn::Module& model,
               const LoraOptions& options, const LoraTargets& targets,
               std::shared_ptr<const checkpoint::ParameterSource> plain)
      : values_(std::move(values)),
        plain_(std::move(plain)),
        start_(lora_start(options.start)),
        has_magnitude_(options.use_dora),
        token_rows_{targets.token_table, kTokenRows, options.trainable_token_indices},
        prompt_rows_{targets.prompt_table, kPromptRows, options.prompt.init_ids} {
    const LayerOptions options_of(options);
    const auto modules = model.named_modules("", /*include_self=*/false);
    for (const std::string& name : targets.adapted) {
      const LoraOptions own = options_of(name);
      const auto& layer = dynamic_cast<const nn::Linear&>(*modules[name]);
      layers_[name] = {layer.out_features(), layer.in_features(), own.rank, lora_scaling(own),
                       layer.form().has_value()};
    }
  }

  bool holds(const std::string& parameter) const override { return values_->holds(parameter); }

  std::optional<DType> stored_dtype(const std::string& parameter) const override {
    if (find_rows(parameter) != nullptr || find(parameter)) return std::nullopt;
    return values_->stored_dtype(parameter);
  }

  void read(const std::string& parameter, const parallel::Box& box,
            const at::Tensor& destination) const override {
    if (const Rows* rows = find_rows(parameter)) return read_rows_of(*rows, box, destination);
    const auto found = find(parameter);
    if (!found) return values_->read(parameter, box, destination);
    if (box.numel() == 0) return;
    const at::NoGradGuard no_grad;
    if (found->is_magnitude) {
      destination.copy_(magnitudes(found->layer, box.offset[0], box.size[0]));
      return;
    }
    const LowRank factors = factors_of(found->layer);
    const at::Tensor part = parallel::box_part(found->is_a ? factors.a : factors.b, box);
    destination.copy_(found->is_negative ? part.neg() : part);
  }

 private:
  struct Layer {
    int64_t out = 0, in = 0, rank = 0;
    double scaling = 1.0;
    bool is_coded = false;
  };
  // A parameter whose values are made here.
  struct Made {
    std::string layer;
    bool is_magnitude = false, is_a = false, is_negative = false;
  };

  std::optional<Made> find(const std::string& parameter) const {
    const auto layer_of = [&](const char* suffix) {
      return parameter.ends_with(suffix) ? parameter.substr(0, parameter.size() - std::string(suffix).size())
                                         : std::string();
    };
    if (const std::string layer = layer_of(kMagnitude); has_magnitude_ && layers_.contains(layer))
      return Made{layer, true};
    if (!start_.reads_base()) return std::nullopt;
    for (const auto& [suffix, is_a] : kFactors) {
      const std::string layer = layer_of(suffix);
      if (!layers_.contains(layer)) continue;
      // LoftQ has nothing to correct in a weight that keeps its values.
      if (!start_.takes_from_base() && !layers_.at(layer).is_coded) return std::nullopt;
      return Made{layer, false, is_a, !is_a && std::string(suffix).find("start") != std::string::npos};
    }
    return std::nullopt;
  }

  // Rows of their own that begin as those of these ids in a table.
  struct Rows {
    std::string table;
    const char* name;
    std::vector<int64_t> ids;
  };
  // Returns null for a parameter that is no such rows.
  const Rows* find_rows(const std::string& parameter) const {
    for (const Rows* rows : {&token_rows_, &prompt_rows_}) {
      if (!rows->ids.empty() && parameter == rows->table + rows->name) return rows;
    }
    return nullptr;
  }

  void read_rows_of(const Rows& rows, const parallel::Box& box, const at::Tensor& destination) const {
    for (int64_t i = 0; i < box.size[0]; ++i) {
      const int64_t id = rows.ids.at(static_cast<size_t>(box.offset[0] + i));
      values_->read(rows.table + ".weight", {{id, box.offset[1]}, {1, box.size[1]}},
                    destination.narrow(0, i, 1));
    }
  }

  static at::Tensor read_rows(const checkpoint::ParameterSource& source, const std::string& parameter,
                              int64_t first, int64_t count, int64_t width) {
    const at::Tensor rows = at::empty({count, width}, on_host(at::kDouble));
    source.read(parameter, {{first, 0}, {count, width}}, rows);
    return rows;
  }

  // The factors that a layer begins with, of the last layer without a decomposition.
  LowRank factors_of(const std::string& name) const {
    const Layer& layer = layers_.at(name);
    const std::scoped_lock lock(mutex_);
    if (last_ != name) {
      const std::string parameter = name + ".weight";
      at::Tensor weight = read_rows(*values_, parameter, 0, layer.out, layer.in);
      if (!start_.takes_from_base())
        weight = read_rows(*plain_, parameter, 0, layer.out, layer.in).sub_(weight);
      last_factors_ = initial_factors(weight, layer.rank, layer.scaling, start_, stream_of(name.c_str()));
      last_ = name;
    }
    return last_factors_;
  }

  // The norms of some rows of the weight. Factors that are taken from the base change it by nothing.
  at::Tensor magnitudes(const std::string& name, int64_t first, int64_t count) const {
    const Layer& layer = layers_.at(name);
    const bool is_same = start_.takes_from_base();
    const at::Tensor a = is_same ? at::zeros({1, layer.in}, on_host(at::kDouble))
                                 : read_rows(*this, name + kFactorA, 0, layer.rank, layer.in);
    const at::Tensor norms = at::empty({count}, on_host(at::kDouble));
    const int64_t step = std::max<int64_t>(1, kPieceElements / layer.in);
    for (int64_t begin = 0; begin < count; begin += step) {
      const int64_t size = std::min(step, count - begin);
      const at::Tensor weight = read_rows(*values_, name + ".weight", first + begin, size, layer.in);
      const at::Tensor b = is_same ? at::zeros({size, 1}, on_host(at::kDouble))
                                   : read_rows(*this, name + kFactorB, first + begin, size, layer.rank);
      norms.narrow(0, begin, size).copy_(row_norms(weight, a, b, layer.scaling));
    }
    return norms;
  }

  const std::shared_ptr<const checkpoint::ParameterSource> values_, plain_;
  const LoraStart start_;
  const bool has_magnitude_;
  const Rows token_rows_, prompt_rows_;
  std::map<std::string, Layer> layers_;
  mutable std::mutex mutex_;
  mutable std::string last_;  // the layer of last_factors_
  mutable LowRank last_factors_;
};

}  // namespace

std::shared_ptr<const checkpoint::ParameterSource> with_adapter_start(
    std::shared_ptr<const checkpoint::ParameterSource> values, const torch::nn::Module& model,
    const LoraOptions& options, const LoraTargets& targets,
    std::shared_ptr<const checkpoint::ParameterSource> plain) {
  const LoraStart start = lora_start(options.start);
  const bool copies_rows = !targets.token_table.empty() || !options.prompt.init_ids.empty();
  if (!options.use_dora && !start.reads_base() && !copies_rows) return values;
  TESSERA_ASSERT(plain != nullptr || start.kind != LoraStart::Kind::Loftq,
                 "LoftQ has values to compare with");
  return std::make_shared<AdapterStart>(std::move(values), model, options, targets, std::move(plain));
}

}  // namespace tessera::peft
