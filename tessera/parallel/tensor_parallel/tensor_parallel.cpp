#include "tessera/parallel/tensor_parallel/tensor_parallel.h"

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

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
  // `axes`: what the ranks of `group` make.
  Cutter(std::shared_ptr<comm::Communicator> group, std::vector<RankAxis> axes,
         const TensorParallelOptions& options)
      : group_(std::move(group)), options_(options), layouts_(std::move(axes)) {}

  void apply(const std::string& name, nn::Layer& layer, const LayerStyle& style) {
    switch (style.kind) {
      case LayerStyle::Kind::Region: return layer.set_parallel(detail::region_input(group_, name, options_));
      case LayerStyle::Kind::SummedRegion:
        return layer.set_parallel(detail::summed_region(group_, name, options_));
      case LayerStyle::Kind::PartialGradient: return place_whole(layer);
      case LayerStyle::Kind::PerToken:
        if (options_.sequence_parallel) place_whole(layer);
        return;
      case LayerStyle::Kind::Sliced:
        if (!options_.sequence_parallel) return;
        place_whole(layer);
        return layer.set_parallel(detail::own_tokens(group_));
      case LayerStyle::Kind::Colwise:
      case LayerStyle::Kind::SharedColwise: return cut_linear(name, as<nn::Linear>(layer, name), style, true);
      case LayerStyle::Kind::Rowwise:
        cut_linear(name, as<nn::Linear>(layer, name), style, false);
        return layer.set_parallel(detail::product_output(group_, name, options_));
      case LayerStyle::Kind::RowwisePart: return cut_linear(name, as<nn::Linear>(layer, name), style, false);
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

  // Gives `parameter` its layout and the shape of this rank's part. Returns what that is.
  Box place(at::Tensor parameter, const std::function<AxisPlacement(size_t axis)>& placement) {
    TESSERA_ASSERT(parameter.is_meta(), "tensor parallelism comes before values");
    std::vector<AxisPlacement> placements;
    for (const RankAxis& axis : layouts_.axes()) {
      AxisPlacement along = placement(placements.size());
      along.axis = axis.name;
      along.size = axis.group->size();
      placements.push_back(std::move(along));
    }
    Layout layout(parameter.sizes().vec(), to_dtype(parameter.scalar_type()), std::move(placements));
    Box box = layout.local_box(coordinates_on(layouts_.axes()));
    nn::materialize(parameter, at::empty(box.size, parameter.options().requires_grad(false)));
    layouts_.set(parameter, std::move(layout));
    return box;
  }

  Box place_cut(const at::Tensor& parameter, int64_t dim, const LayerStyle& style) {
    return place(parameter, [&](size_t axis) {
      const bool is_inner = axis > 0;
      if (is_inner && style.kind == LayerStyle::Kind::SharedColwise) return kUsedForAPart;
      return AxisPlacement{.placement = Placement::shard(dim, is_inner ? style.inner_unit : style.unit)};
    });
  }

  void place_whole(const at::Tensor& parameter) {
    place(parameter, [](size_t) { return kUsedForAPart; });
  }

  void place_whole(nn::Layer& layer) {
    for (const at::Tensor& parameter : layer.parameters()) place_whole(parameter);
  }

  void cut_linear(const std::string& name, nn::Linear& linear, const LayerStyle& style, bool is_colwise) {
    const int64_t in_features = linear.in_features();
    const Box box = place_cut(linear.weight, is_colwise ? 0 : 1, style);
    if (is_colwise && linear.bias.defined()) place_cut(linear.bias, 0, style);
    // Added to the tokens that the rank is left with.
    if (!is_colwise && linear.bias.defined() && options_.sequence_parallel) place_whole(linear.bias);
    if (linear.adapter() == nullptr) return;
    for (const nn::AdapterParameter& parameter : linear.adapter()->adapter_parameters()) {
      const std::optional<int64_t>& dim = is_colwise ? parameter.out_dim : parameter.in_dim;
      dim ? static_cast<void>(place_cut(parameter.tensor, *dim, style)) : place_whole(parameter.tensor);
    }
    if (!is_colwise) linear.adapter()->set_input_part(box.offset[1], in_features);
  }

  void cut_table(const std::string& name, nn::Layer& layer, const LayerStyle& style) {
    if (auto* const linear = dynamic_cast<nn::Linear*>(&layer)) return cut_linear(name, *linear, style, true);
    nn::Embedding& embedding = as<nn::Embedding>(layer, name);
    embedding.set_first_row(place_cut(embedding.weight, 0, style).offset[0]);
    embedding.set_parallel(detail::region_output(group_, name, options_));
  }

  // What has no dim that is cut: every rank uses all of it for its part of an activation.
  static inline const AxisPlacement kUsedForAPart{.placement = Placement::replicate(), .sums_gradient = true};

  const std::shared_ptr<comm::Communicator> group_;
  const TensorParallelOptions options_;
  ParameterLayouts layouts_;
};

}  // namespace

std::vector<int64_t> tensor_parallel_axes(const TensorParallelPlan& plan, int64_t num_ranks) {
  const int64_t parts = plan.most_shared_parts;
  if (parts == 0 || num_ranks <= parts) return {num_ranks};
  if (num_ranks % parts == 0) return {parts, num_ranks / parts};
  const int64_t below = num_ranks / parts * parts;
  throw Error(ErrorKind::Config, "TENSOR-PARALLEL",
              "attention cannot be cut over " + std::to_string(num_ranks) + " ranks")
      .got(std::to_string(parts) + " key/value heads")
      .need("at most " + std::to_string(parts) + " ranks, or a multiple of it")
      .hint("the nearest that work are " + std::to_string(below) + " and " + std::to_string(below + parts));
}

void check_tensor_parallel(const torch::nn::Module& root, const TensorParallelPlan& plan, int64_t num_ranks) {
  const nn::NamedLayers layers = nn::named_layers(root);
  const std::vector<int64_t> axes = tensor_parallel_axes(plan, num_ranks);
  for (const auto& [name, style] : plan.layers) {
    const auto layer = nn::find_layer(layers, name);
    if (!style.cuts_weight()) continue;
    const int64_t dim = style.is_rowwise() ? 1 : 0;
    const int64_t length = layer->named_parameters(/*recurse=*/false)["weight"].size(dim);
    const auto units_of = [](int64_t elements, int64_t unit) { return (elements + unit - 1) / unit; };
    // The smallest part is the last.
    const int64_t part = piece_of(length, axes[0], axes[0] - 1, style.unit).size;
    const bool has_two = axes.size() > 1 && style.kind != LayerStyle::Kind::SharedColwise;
    const int64_t units = units_of(length, style.unit), inner = units_of(part, style.inner_unit);
    if (units >= axes[0] && (!has_two || inner >= axes[1])) continue;
    const bool is_inner = units >= axes[0];
    const int64_t got = is_inner ? inner : units, unit = is_inner ? style.inner_unit : style.unit;
    throw Error(ErrorKind::Config, "TENSOR-PARALLEL",
                "'" + name + "' cannot be cut over " + std::to_string(num_ranks) + " ranks")
        .got(std::to_string(got) +
             (unit > 1 ? " parts of " + std::to_string(unit) : std::string(" elements")) +
             (is_inner ? " in each of " + std::to_string(axes[0]) : ""))
        .need("at least " + std::to_string(is_inner ? axes[1] : num_ranks))
        .hint("lower tensor_parallel_size: attention is cut between its heads");
  }
}

ParameterLayouts tensor_parallel(torch::nn::Module& root, const TensorParallelPlan& plan,
                                 const RankAxis& axis, const TensorParallelOptions& options) {
  comm::Communicator& group = *axis.group;
  check_tensor_parallel(root, plan, group.size());
  std::vector<RankAxis> axes = {axis};
  const std::vector<int64_t> sizes = tensor_parallel_axes(plan, group.size());
  if (sizes.size() > 1) {
    const int64_t part = group.rank() / sizes[1], copy = group.rank() % sizes[1];
    axes = {{axis.name + "_part", group.split(copy, part, axis.name + "_part")},
            {axis.name + "_copy", group.split(part, copy, axis.name + "_copy")}};
  }
  Cutter cutter(axis.group, std::move(axes), options);
  const nn::NamedLayers layers = nn::named_layers(root);
  for (const auto& [name, style] : plan.layers) cutter.apply(name, *nn::find_layer(layers, name), style);
  return cutter.layouts();
}

void tensor_parallel_head(nn::OutputHead& head, const ParameterLayouts& layouts, const RankAxis& axis,
                          const TensorParallelOptions& options) {
  const Layout weight = layouts.of(head.weight());
  ops::VocabularyPart part;
  part.first_token = weight.local_box(coordinates_on(layouts.axes())).offset[0];
  part.vocab_size = weight.shape()[0];
  part.all_max = detail::sum_over(axis.group, "largest logits", comm::ReduceOp::Max);
  part.all_sum = detail::sum_over(axis.group, "sums of the loss");
  head.set_part(std::move(part));
  head.set_parallel(detail::head_exchange(axis.group, layouts.axes(), weight, options));
}

}  // namespace tessera::parallel
