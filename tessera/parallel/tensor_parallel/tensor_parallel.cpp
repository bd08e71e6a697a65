#include "tessera/parallel/tensor_parallel/tensor_parallel.h"

#include <memory>
#include <optional>
#include <string>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "tessera/core/error.h"
#include "tessera/core/torch_dtype.h"
#include "tessera/nn/embedding.h"
#include "tessera/nn/linear.h"
#include "tessera/nn/materialize.h"
#include "tessera/ops/pass_through.h"
#include "tessera/parallel/gather_tensor.h"

namespace tessera::parallel {
namespace {

using Group = std::shared_ptr<comm::Communicator>;

ops::ChangeInPlace sum_over(const Group& group, const std::string& what,
                            comm::ReduceOp op = comm::ReduceOp::Sum) {
  return [group, what, op](const at::Tensor& value) { group->all_reduce(value, false, {{{}, what}, op}); };
}

// Where whole activations come into a region of layers that are cut.
class SumGradients : public nn::LayerParallel {
 public:
  SumGradients(const Group& group, const std::string& name)
      : sum_(sum_over(group, "gradient of the input of " + name)) {}
  ops::Activation input(const ops::Activation& x) const override { return ops::change_gradient(x, sum_); }

 private:
  ops::ChangeInPlace sum_;
};

// Where parts of a sum leave it.
class SumOutputs : public nn::LayerParallel {
 public:
  SumOutputs(const Group& group, const std::string& name) : sum_(sum_over(group, "output of " + name)) {}
  at::Tensor output(const at::Tensor& y) const override { return ops::change_value_(y, sum_); }

 private:
  ops::ChangeInPlace sum_;
};

struct GatherColumns : torch::autograd::Function<GatherColumns> {
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& part,
                            const Layout& layout, const std::vector<RankAxis>& axes) {
    const Box box = layout.local_box({axes.front().group->rank()});
    ctx->saved_data["begin"] = box.offset[1];
    ctx->saved_data["size"] = box.size[1];
    return gather_tensor(part, layout, axes, "logits");
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 const torch::autograd::variable_list& grads) {
    const at::Tensor part =
        grads[0].narrow(1, ctx->saved_data["begin"].toInt(), ctx->saved_data["size"].toInt());
    return {part.contiguous(), {}, {}};
  }
};

// The output projection: whole hidden states come in, and whole logits leave it.
class GatherLogits : public SumGradients {
 public:
  GatherLogits(const RankAxis& axis, Layout weight)
      : SumGradients(axis.group, "the output projection"), axes_({axis}), weight_(std::move(weight)) {}
  at::Tensor output(const at::Tensor& y) const override {
    const Layout logits(
        {y.size(0), weight_.shape()[0]}, weight_.dtype(),
        {{axes_[0].name, axes_[0].group->size(), Placement::shard(1, weight_.axes()[0].placement.unit)}});
    return GatherColumns::apply(y, logits, axes_);
  }

 private:
  std::vector<RankAxis> axes_;
  Layout weight_;
};

class Cutter {
 public:
  Cutter(const RankAxis& axis) : axis_(axis), layouts_({axis}) {}

  void apply(const std::string& name, nn::Layer& layer, const LayerStyle& style) {
    switch (style.kind) {
      case LayerStyle::Kind::Region:
        layer.set_parallel(std::make_shared<SumGradients>(axis_.group, name));
        return;
      case LayerStyle::Kind::PartialGradient:
        for (at::Tensor& parameter : layer.parameters()) place(parameter, Placement::replicate(), true);
        return;
      case LayerStyle::Kind::Colwise: return cut_linear(name, as<nn::Linear>(layer, name), style, true);
      case LayerStyle::Kind::Rowwise:
        cut_linear(name, as<nn::Linear>(layer, name), style, false);
        layer.set_parallel(std::make_shared<SumOutputs>(axis_.group, name));
        return;
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

  void cut_linear(const std::string& name, nn::Linear& linear, const LayerStyle& style, bool is_colwise) {
    const int64_t in_features = linear.in_features();
    place(linear.weight, Placement::shard(is_colwise ? 0 : 1, style.unit), false);
    if (is_colwise && linear.bias.defined()) place(linear.bias, Placement::shard(0, style.unit), false);
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
    embedding.set_parallel(std::make_shared<SumOutputs>(axis_.group, name));
  }

  const RankAxis axis_;
  ParameterLayouts layouts_;
};

}  // namespace

void check_tensor_parallel(const torch::nn::Module& root, const TensorParallelPlan& plan, int64_t num_ranks) {
  const nn::NamedLayers layers = nn::named_layers(root);
  for (const auto& [name, style] : plan) {
    const auto layer = nn::find_layer(layers, name);
    if (style.kind == LayerStyle::Kind::Region || style.kind == LayerStyle::Kind::PartialGradient) continue;
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
                                 const RankAxis& axis) {
  check_tensor_parallel(root, plan, axis.group->size());
  Cutter cutter(axis);
  const nn::NamedLayers layers = nn::named_layers(root);
  for (const auto& [name, style] : plan) cutter.apply(name, *nn::find_layer(layers, name), style);
  return cutter.layouts();
}

void tensor_parallel_head(nn::OutputHead& head, const ParameterLayouts& layouts) {
  const RankAxis& axis = layouts.axes().front();
  const Layout weight = layouts.of(head.weight());
  ops::VocabularyPart part;
  part.first_token = weight.local_box({axis.group->rank()}).offset[0];
  part.vocab_size = weight.shape()[0];
  part.all_max = sum_over(axis.group, "largest logits", comm::ReduceOp::Max);
  part.all_sum = sum_over(axis.group, "sums of the loss");
  head.set_part(std::move(part));
  head.set_parallel(std::make_shared<GatherLogits>(axis, weight));
}

}  // namespace tessera::parallel
