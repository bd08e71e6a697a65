#include "tessera/parallel/tensor_parallel/exchanges.h"

#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "tessera/core/error.h"
#include "tessera/parallel/gather_tensor.h"

namespace tessera::parallel::detail {
namespace {

// Of the tokens of all ranks, [tokens, ...], one rank's.
int64_t own_size(const at::Tensor& tokens, const comm::Communicator& group) {
  if (tokens.size(0) % group.size() == 0) return tokens.size(0) / group.size();
  throw Error(ErrorKind::Config, "TENSOR-PARALLEL",
              "sequence parallelism cuts a batch into equal numbers of tokens")
      .got(std::to_string(tokens.size(0)) + " tokens")
      .need("a multiple of " + std::to_string(group.size()))
      .hint("add tokens without a label, as a document of their own");
}

ops::Transform gather_tokens(const Group& group, const std::string& what) {
  return [group, what](const at::Tensor& own) {
    std::vector<int64_t> sizes = own.sizes().vec();
    sizes[0] *= group->size();
    const at::Tensor tokens = at::empty(sizes, own.options().requires_grad(false));
    group->all_gather_single(tokens, own.contiguous(), false, {{{}, what}});
    return tokens;
  };
}

// The sum over ranks of the tokens of this one.
ops::Transform scatter_sum(const Group& group, const std::string& what) {
  return [group, what](const at::Tensor& tokens) {
    std::vector<int64_t> sizes = tokens.sizes().vec();
    sizes[0] = own_size(tokens, *group);
    const at::Tensor own = at::empty(sizes, tokens.options().requires_grad(false));
    group->reduce_scatter_single(own, tokens.contiguous(), false, {{{}, what}});
    return own;
  };
}

class SumGradients : public nn::LayerParallel {
 public:
  SumGradients(const Group& group, const std::string& name)
      : sum_(sum_over(group, "gradient of the input of " + name)) {}
  ops::Activation input(const ops::Activation& x) const override { return ops::change_gradient(x, sum_); }

 private:
  ops::ChangeInPlace sum_;
};

class GatherTokens : public nn::LayerParallel {
 public:
  GatherTokens(const Group& group, const std::string& name)
      : gather_(gather_tokens(group, "input of " + name)),
        scatter_(scatter_sum(group, "gradient of the input of " + name)) {}
  ops::Activation input(const ops::Activation& x) const override {
    return ops::exchange(x, gather_, scatter_);
  }

 private:
  ops::Transform gather_, scatter_;
};

class SumOutputs : public nn::LayerParallel {
 public:
  SumOutputs(const Group& group, const std::string& name) : sum_(sum_over(group, "output of " + name)) {}
  at::Tensor output(const at::Tensor& y) const override { return ops::change_value_(y, sum_); }

 private:
  ops::ChangeInPlace sum_;
};

class ScatterTokens : public nn::LayerParallel {
 public:
  ScatterTokens(const Group& group, const std::string& name)
      : scatter_(scatter_sum(group, "output of " + name)),
        gather_(gather_tokens(group, "gradient of the output of " + name)) {}
  at::Tensor output(const at::Tensor& y) const override { return ops::exchange_value(y, scatter_, gather_); }

 private:
  ops::Transform scatter_, gather_;
};

class SummedRegion : public nn::LayerParallel {
 public:
  SummedRegion(Exchange input, Exchange output, int64_t num_ranks)
      : input_(std::move(input)), output_(std::move(output)), share_(1.0 / static_cast<double>(num_ranks)) {}
  ops::Activation input(const ops::Activation& x) const override { return input_->input(x); }
  at::Tensor output(const at::Tensor& y) const override { return output_->output(y); }
  double share() const override { return share_; }

 private:
  Exchange input_, output_;
  double share_;
};

class OwnTokens : public nn::LayerParallel {
 public:
  explicit OwnTokens(Group group) : group_(std::move(group)) {}
  at::Tensor output(const at::Tensor& y) const override {
    const int64_t size = own_size(y, *group_);
    return y.narrow(0, group_->rank() * size, size);
  }

 private:
  Group group_;
};

struct GatherColumns : torch::autograd::Function<GatherColumns> {
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& part,
                            const Layout& layout, const std::vector<RankAxis>& axes) {
    const Box box = layout.local_box(coordinates_on(axes));
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

class HeadExchange : public nn::LayerParallel {
 public:
  HeadExchange(Exchange input, std::vector<RankAxis> axes, Layout weight)
      : input_(std::move(input)), axes_(std::move(axes)), weight_(std::move(weight)) {}
  ops::Activation input(const ops::Activation& x) const override { return input_->input(x); }
  at::Tensor output(const at::Tensor& y) const override {
    std::vector<AxisPlacement> placements = weight_.axes();
    for (AxisPlacement& along : placements) along.placement.dim = 1;
    const Layout logits({y.size(0), weight_.shape()[0]}, weight_.dtype(), std::move(placements));
    return GatherColumns::apply(y, logits, axes_);
  }

 private:
  Exchange input_;
  std::vector<RankAxis> axes_;
  Layout weight_;
};

}  // namespace

ops::ChangeInPlace sum_over(const Group& group, const std::string& what, comm::ReduceOp op) {
  return [group, what, op](const at::Tensor& value) { group->all_reduce(value, false, {{{}, what}, op}); };
}

Exchange region_input(const Group& group, const std::string& name, const TensorParallelOptions& options) {
  if (options.sequence_parallel) return std::make_shared<GatherTokens>(group, name);
  return std::make_shared<SumGradients>(group, name);
}

Exchange region_output(const Group& group, const std::string& name, const TensorParallelOptions& options) {
  if (options.sequence_parallel) return std::make_shared<ScatterTokens>(group, name);
  return std::make_shared<SumOutputs>(group, name);
}

Exchange summed_region(const Group& group, const std::string& name, const TensorParallelOptions& options) {
  return std::make_shared<SummedRegion>(region_input(group, name, options),
                                        region_output(group, name, options), group->size());
}

Exchange own_tokens(const Group& group) { return std::make_shared<OwnTokens>(group); }

Exchange head_exchange(const Group& group, const std::vector<RankAxis>& axes, const Layout& weight,
                       const TensorParallelOptions& options) {
  return std::make_shared<HeadExchange>(region_input(group, "the output projection", options), axes, weight);
}

}  // namespace tessera::parallel::detail
