#include "tessera/parallel/tensor_parallel/tensor_parallel.h"

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <c10/util/accumulate.h>

#include "tessera/core/error.h"
#include "tessera/core/nearest_size.h"
#include "tessera/device/torch_dtype.h"
#include "tessera/nn/embedding.h"
#include "tessera/nn/linear.h"
#include "tessera/nn/materialize.h"
#include "tessera/nn/rms_norm.h"
#include "tessera/parallel/tensor_parallel/exchanges.h"

namespace tessera::parallel {
namespace {

class Cutter {
 public:
  // `axes`: the one or two axes that the ranks of `group` form.
  Cutter(std::shared_ptr<comm::Communicator> group, std::vector<RankAxis> axes,
         const TensorParallelOptions& options)
      : group_(std::move(group)), options_(options), layouts_(std::move(axes)) {}

  void apply(const std::string& name, nn::Layer& layer, const LayerStyle& style) {
    switch (style.kind) {
      case LayerStyle::Kind::Region: return layer.set_parallel(detail::region_input(group_, name, options_));
      case LayerStyle::Kind::WaitingRegion:
        return layer.set_parallel(
            detail::region_input(group_, name, {.sequence_parallel = options_.sequence_parallel}));
      case LayerStyle::Kind::SummedRegion:
        return layer.set_parallel(detail::summed_region(group_, name, options_));
      case LayerStyle::Kind::PartialGradient: return place_whole(layer);
      case LayerStyle::Kind::CutNorm:
      case LayerStyle::Kind::SharedCutNorm: return cut_norm(name, layer, style);
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
      case LayerStyle::Kind::RowwisePart: return cut_part(name, as<nn::Linear>(layer, name), style);
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

  // Gives `parameter` its layout and the shape of this rank's part, and returns the box of that part.
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
    // The part shares the storage of the whole, so that an estimate does not count it as new memory.
    const at::Tensor storage = parameter.detach().flatten();
    nn::materialize(parameter, storage.narrow(0, 0, c10::multiply_integers(box.size)).view(box.size));
    layouts_.set(parameter, std::move(layout));
    return box;
  }

  Box place_cut(const at::Tensor& parameter, int64_t dim, const LayerStyle& style) {
    return place(parameter, [&](size_t axis) {
      const bool is_inner = axis > 0;
      if (is_inner && style.is_shared()) return kUsedForAPart;
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
    LayerStyle of_weight = style;
    if (!is_colwise && linear.form()) {
      // The columns of a coded weight are the bytes of its blocks.
      of_weight.unit = linear.form()->row_bytes(style.unit);
      of_weight.inner_unit = linear.form()->row_bytes(style.inner_unit);
    }
    const Box box = place_cut(linear.weight, is_colwise ? 0 : 1, of_weight);
    const int64_t first_input =
        linear.form() ? box.offset[1] / linear.form()->bytes * linear.form()->elements : box.offset[1];
    is_colwise ? linear.set_first_output(box.offset[0]) : linear.set_first_input(first_input);
    if (is_colwise && linear.bias.defined()) place_cut(linear.bias, 0, style);
    // The whole bias is added to the tokens that the rank keeps, so its gradients are summed over ranks.
    if (!is_colwise && linear.bias.defined() && options_.sequence_parallel) place_whole(linear.bias);
    if (linear.adapter() == nullptr) return;
    for (const nn::AdapterParameter& parameter : linear.adapter()->adapter_parameters()) {
      const std::optional<int64_t>& dim = is_colwise ? parameter.out_dim : parameter.in_dim;
      dim ? static_cast<void>(place_cut(parameter.tensor, *dim, style)) : place_whole(parameter.tensor);
    }
    if (is_colwise) return linear.adapter()->set_output_part(box.offset[0]);
    linear.adapter()->set_input_part(first_input, in_features,
                                     detail::sum_over(group_, "sums over the input of " + name));
  }

  // The outputs are summed later, and so is the bias, of which every rank adds an equal share.
  void cut_part(const std::string& name, nn::Linear& linear, const LayerStyle& style) {
    cut_linear(name, linear, style, false);
    if (!linear.bias.defined()) return;
    linear.set_bias_share(1.0 / static_cast<double>(group_->size()));
    if (!options_.sequence_parallel) place_whole(linear.bias);
  }

  void cut_norm(const std::string& name, nn::Layer& layer, const LayerStyle& style) {
    for (const at::Tensor& parameter : layer.parameters()) {
      const int64_t whole = parameter.size(0);
      place_cut(parameter, 0, style);
      auto* const norm = dynamic_cast<nn::RMSNorm*>(&layer);
      if (norm == nullptr) continue;
      const bool has_copies = style.is_shared() && layouts_.axes().size() > 1;
      const int64_t copies = has_copies ? layouts_.axes().back().group->size() : 1;
      norm->set_part(whole * copies, detail::sum_over(group_, "sums over the heads of " + name));
    }
  }

  void cut_table(const std::string& name, nn::Layer& layer, const LayerStyle& style) {
    if (auto* const linear = dynamic_cast<nn::Linear*>(&layer)) return cut_linear(name, *linear, style, true);
    if (auto* const bias = dynamic_cast<nn::HeadBias*>(&layer)) {
      place_cut(bias->bias, 0, style);
      return;
    }
    nn::Embedding& embedding = as<nn::Embedding>(layer, name);
    embedding.set_first_row(place_cut(embedding.weight, 0, style).offset[0]);
    if (embedding.token_rows() != nullptr) place_whole(embedding.token_rows()->rows);
    if (embedding.virtual_rows() != nullptr) place_whole(embedding.virtual_rows()->weight);
    embedding.set_parallel(detail::region_output(group_, name, options_));
  }

  // Placement of a parameter of which no dim is cut: every rank uses all of it, for its part of an
  // activation.
  static inline const AxisPlacement kUsedForAPart{.placement = Placement::replicate(), .sums_gradient = true};

  const std::shared_ptr<comm::Communicator> group_;
  const TensorParallelOptions options_;
  ParameterLayouts layouts_;
};

std::optional<std::vector<int64_t>> find_axes(const TensorParallelPlan& plan, int64_t num_ranks) {
  const int64_t parts = plan.most_shared_parts;
  if (parts == 0 || num_ranks <= parts) return std::vector<int64_t>{num_ranks};
  if (num_ranks % parts == 0) return std::vector<int64_t>{parts, num_ranks / parts};
  return std::nullopt;
}

Error uneven_copies(const TensorParallelPlan& plan, int64_t num_ranks) {
  const std::string parts = std::to_string(plan.most_shared_parts);
  return Error(ErrorKind::Config, "TENSOR-PARALLEL",
               "attention cannot be cut over " + std::to_string(num_ranks) + " ranks")
      .got(parts + " key/value heads")
      .need("at most " + parts + " ranks, or a multiple of it");
}

// A layer that is cut. `length` is that of the dim along which it is cut.
struct CutLayer {
  const std::string& name;
  const LayerStyle& style;
  int64_t length;
};

// Returns why the layers cannot be cut over `num_ranks` ranks; nullopt if they can.
std::optional<Error> find_misfit(const std::vector<CutLayer>& layers, const TensorParallelPlan& plan,
                                 int64_t num_ranks) {
  const auto axes = find_axes(plan, num_ranks);
  if (!axes) return uneven_copies(plan, num_ranks);
  const auto units_of = [](int64_t elements, int64_t unit) { return (elements + unit - 1) / unit; };
  const auto in_units = [](int64_t count, int64_t unit) {
    return std::to_string(count) +
           (unit > 1 ? " parts of " + std::to_string(unit) : std::string(" elements"));
  };
  for (const auto& [name, style, length] : layers) {
    const auto too_few = [&, &layer = name](const std::string& got, int64_t need) {
      return Error(ErrorKind::Config, "TENSOR-PARALLEL",
                   "'" + layer + "' cannot be cut over " + std::to_string(num_ranks) + " ranks")
          .got(got)
          .need("at least " + std::to_string(need));
    };
    const int64_t outer = axes->front(), units = units_of(length, style.unit);
    if (units < outer) return too_few(in_units(units, style.unit), outer);
    if (axes->size() == 1 || style.is_shared()) continue;
    // The last part of the outer axis is the smallest.
    const int64_t smallest = piece_of(length, outer, outer - 1, style.unit).size;
    const int64_t inner = units_of(smallest, style.inner_unit);
    if (inner >= axes->back()) continue;
    return too_few(in_units(inner, style.inner_unit) + " in each of the " + std::to_string(outer) +
                       " parts that key/value heads make",
                   axes->back());
  }
  return std::nullopt;
}

}  // namespace

std::vector<int64_t> tensor_parallel_axes(const TensorParallelPlan& plan, int64_t num_ranks) {
  if (const auto axes = find_axes(plan, num_ranks)) return *axes;
  throw uneven_copies(plan, num_ranks);
}

void check_tensor_parallel(const torch::nn::Module& root, const TensorParallelPlan& plan, int64_t num_ranks) {
  const nn::NamedLayers named = nn::named_layers(root);
  std::vector<CutLayer> layers;
  for (const auto& [name, style] : plan.layers) {
    const auto layer = nn::find_layer(named, name);
    if (!style.cuts_weight()) continue;
    const auto* const linear = dynamic_cast<const nn::Linear*>(layer.get());
    const int64_t length =
        style.is_rowwise() ? linear->in_features() : layer->parameters(/*recurse=*/false).front().size(0);
    layers.push_back({name, style, length});
  }
  std::optional<Error> misfit = find_misfit(layers, plan, num_ranks);
  if (!misfit) return;
  const auto fits = [&](int64_t size) { return !find_misfit(layers, plan, size); };
  throw misfit->hint(
      nearest_size_hint("tensor_parallel_size", nearest_sizes(num_ranks, 2 * num_ranks, fits)));
}

ParameterLayouts tensor_parallel(torch::nn::Module& root, const TensorParallelPlan& plan,
                                 const RankAxis& axis, const TensorParallelOptions& options) {
  comm::Communicator& group = *axis.group;
  check_tensor_parallel(root, plan, group.size());
  std::vector<RankAxis> axes = {axis};
  const std::vector<int64_t> sizes = tensor_parallel_axes(plan, group.size());
  if (sizes.size() > 1) {
    const int64_t part = group.rank() / sizes[1], copy = group.rank() % sizes[1];
    axes = {{axis.name + "_part", group.split(copy, part, axis.name + "_part", sizes[0])},
            {axis.name + "_copy", group.split(part, copy, axis.name + "_copy", sizes[1])}};
  }
  Cutter cutter(axis.group, std::move(axes), options);
  const nn::NamedLayers layers = nn::named_layers(root);
  for (const auto& [name, style] : plan.layers) cutter.apply(name, *nn::find_layer(layers, name), style);
  return cutter.layouts();
}

void tensor_parallel_head(nn::TaskHead& task_head, const ParameterLayouts& layouts, const RankAxis& axis,
                          const TensorParallelOptions& options) {
  auto* const found = dynamic_cast<nn::OutputHead*>(&task_head);
  if (found == nullptr) {
    if (options.sequence_parallel) task_head.set_parallel(detail::whole_head(axis.group));
    return;
  }
  nn::OutputHead& head = *found;
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
