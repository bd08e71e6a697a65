#include "tessera/parallel/tensor_parallel/tensor_parallel.h"

#include <memory>
#include <optional>
#include <string>

#include <ATen/ATen.h>

#include "tessera/core/error.h"
#include "tessera/core/torch_dtype.h"
#include "tessera/nn/embedding.h"
#include "tessera/nn/linear.h"
#include "tessera/nn/materialize.h"
#include "tessera/parallel/tensor_parallel/exchanges.h"

namespace tessera::parallel {
namespace {

class Cutter {
 public:
  Cutter(const RankAxis& axis, const TensorParallelOptions& options)
      : axis_(axis), options_(options), layouts_({axis}) {}

  void apply(const std::string& name, nn::Layer& layer, const LayerStyle& style) {
    switch (style.kind) {
      case LayerStyle::Kind::Region:
        return layer.set_parallel(detail::region_input(axis_.group, name, options_));
      case LayerStyle::Kind::PartialGradient: return place_whole(layer);
      case LayerStyle::Kind::PerToken:
        if (options_.sequence_parallel) place_whole(layer);
        return;
      case LayerStyle::Kind::Sliced:
        if (!options_.sequence_parallel) return;
        place_whole(layer);
        return layer.set_parallel(detail::own_tokens(axis_.group));
      case LayerStyle::Kind::Colwise: return cut_linear(name, as<nn::Linear>(layer, name), style, true);
      case LayerStyle::Kind::Rowwise:
        cut_linear(name, as<nn::Linear>(layer, name), style, false);
        return layer.set_parallel(detail::region_output(axis_.group, name, options_));
      case LayerStyle::Kind::Vocabulary: return cut_table(name, layer, style);
    }
  }

  const ParameterLayouts& layouts() const { return layouts_; }

 private:
  template <class T>
  static T& as(nn::Layer& layer, const std::string& name) {
    auto* const found = dynamic_cast<T*>(&layer);
    TESSERA_ASSERT(found != nullptr, "the style of '" + name + "' is for another kind of layer");
    return *found;
  }

  // Gives `parameter` its layout and the shape of this rank's part.
  void place(at::Tensor parameter, Placement placement, bool sums_gradient) {
    TESSERA_ASSERT(parameter.is_meta(), "tensor parallelism comes before values");
    const int64_t num_ranks = axis_.group->size();
    Layout layout(parameter.sizes().vec(), to_dtype(parameter.scalar_type()),
                  {{axis_.name, num_ranks, placement, sums_gradient}});
    const Box box = layout.local_box({axis_.group->rank()});
    nn::materialize(parameter, at::empty(box.size, parameter.options().requires_grad(false)));
    layouts_.set(parameter, std::move(layout));
  }

  // Parameters that every rank holds whole and uses for its part.
  void place_whole(nn::Layer& layer) {
    for (at::Tensor& parameter : layer.parameters()) place(parameter, Placement::replicate(), true);
  }

  void cut_linear(const std::string& name, nn::Linear& linear, const LayerStyle& style, bool is_colwise) {
    const int64_t in_features = linear.in_features();
    place(linear.weight, Placement::shard(is_colwise ? 0 : 1, style.unit), false);
    if (is_colwise && linear.bias.defined()) place(linear.bias, Placement::shard(0, style.unit), false);
    // Added to the tokens that the rank is left with.
    if (!is_colwise && linear.bias.defined() && options_.sequence_parallel) {
      place(linear.bias, Placement::replicate(), true);
    }
    if (linear.adapter() == nullptr) return;
    // What has no dim that is cut is used by every rank for its part.
    for (const nn::AdapterParameter& parameter : linear.adapter()->adapter_parameters()) {
      const std::optional<int64_t>& dim = is_colwise ? parameter.out_dim : parameter.in_dim;
      place(parameter.tensor, dim ? Placement::shard(*dim, style.unit) : Placement::replicate(), !dim);
    }
    if (is_colwise) return;
    const Piece columns = piece_of(in_features, axis_.group->size(), axis_.group->rank(), style.unit);
    linear.adapter()->set_input_part(columns.begin, in_features);
  }

  void cut_table(const std::string& name, nn::Layer& layer, const LayerStyle& style) {
    if (auto* const linear = dynamic_cast<nn::Linear*>(&layer)) return cut_linear(name, *linear, style, true);
    nn::Embedding& embedding = as<nn::Embedding>(layer, name);
    place(embedding.weight, Placement::shard(0, style.unit), false);
    const Box box = layouts_.of(embedding.weight).local_box({axis_.group->rank()});
    embedding.set_first_row(box.offset[0]);
    embedding.set_parallel(detail::region_output(axis_.group, name, options_));
  }

  const RankAxis axis_;
  const TensorParallelOptions options_;
  ParameterLayouts layouts_;
};

}  // namespace

void check_tensor_parallel(const torch::nn::Module& root, const TensorParallelPlan& plan, int64_t num_ranks) {
  const nn::NamedLayers layers = nn::named_layers(root);
  for (const auto& [name, style] : plan) {
    const auto layer = nn::find_layer(layers, name);
    if (!style.cuts_weight()) continue;
    const int64_t dim = style.kind == LayerStyle::Kind::Rowwise ? 1 : 0;
    const int64_t length = layer->named_parameters(/*recurse=*/false)["weight"].size(dim);
    const int64_t units = (length + style.unit - 1) / style.unit;
    if (units >= num_ranks) continue;
    throw Error(ErrorKind::Config, "TENSOR-PARALLEL",
                "'" + name + "' cannot be cut over " + std::to_string(num_ranks) + " ranks")
        .got(std::to_string(units) +
             (style.unit > 1 ? " parts of " + std::to_string(style.unit) : std::string(" elements")))
        .need("at least " + std::to_string(num_ranks))
        .hint("lower tensor_parallel_size: attention is cut between its key/value heads");
  }
}

ParameterLayouts tensor_parallel(torch::nn::Module& root, const TensorParallelPlan& plan,
                                 const RankAxis& axis, const TensorParallelOptions& options) {
  check_tensor_parallel(root, plan, axis.group->size());
  Cutter cutter(axis, options);
  const nn::NamedLayers layers = nn::named_layers(root);
  for (const auto& [name, style] : plan) cutter.apply(name, *nn::find_layer(layers, name), style);
  return cutter.layouts();
}

void tensor_parallel_head(nn::OutputHead& head, const ParameterLayouts& layouts,
                          const TensorParallelOptions& options) {
  const RankAxis& axis = layouts.axes().front();
  const Layout weight = layouts.of(head.weight());
  ops::VocabularyPart part;
  part.first_token = weight.local_box({axis.group->rank()}).offset[0];
  part.vocab_size = weight.shape()[0];
  part.all_max = detail::sum_over(axis.group, "largest logits", comm::ReduceOp::Max);
  part.all_sum = detail::sum_over(axis.group, "sums of the loss");
  head.set_part(std::move(part));
  head.set_parallel(detail::head_exchange(axis, weight, options));
}

}  // namespace tessera::parallel
