#include "tessera/parallel/tensor_parallel/exchanges.h"

#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "tessera/nn/row_output.h"
#include "tessera/nn/whole_tokens.h"
#include "tessera/parallel/gather_tensor.h"
#include "tessera/parallel/tensor_parallel/token_exchange.h"

namespace tessera::parallel::detail {
namespace {

// Returns a function that gathers the tokens of all ranks: [own tokens, ...] -> [tokens, ...].
ops::Transform gather_tokens(const Group& group, const std::string& what) {
  return [group, what](const at::Tensor& own) {
    std::vector<int64_t> sizes = own.sizes().vec();
    sizes[0] *= group->size();
    const at::Tensor tokens = at::empty(sizes, own.options().requires_grad(false));
    group->all_gather_single(tokens, own.contiguous(), false, {comm::hint(what)});
    return tokens;
  };
}

// Returns a function that sums [tokens, ...] over the ranks and keeps this rank's tokens of the sum.
ops::Transform scatter_sum(const Group& group, const std::string& what) {
  return [group, what](const at::Tensor& tokens) {
    std::vector<int64_t> sizes = tokens.sizes().vec();
    sizes[0] = num_own_tokens(tokens, *group);
    const at::Tensor own = at::empty(sizes, tokens.options().requires_grad(false));
    group->reduce_scatter_single(own, tokens.contiguous(), false, {comm::hint(what)});
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
    return nn::WholeTokensScope::is_in_force() ? x : ops::exchange(x, gather_, scatter_);
  }

 private:
  ops::Transform gather_, scatter_;
};

class WholeHead : public nn::LayerParallel {
 public:
  explicit WholeHead(const Group& group)
      : gather_(gather_tokens(group, "input of the classifier")), own_([group](const at::Tensor& gradient) {
          const int64_t size = num_own_tokens(gradient, *group);
          return gradient.narrow(0, group->rank() * size, size).contiguous();
        }) {}
  ops::Activation input(const ops::Activation& x) const override {
    return ops::exchange_value(x.value(), gather_, own_);
  }

 private:
  ops::Transform gather_, own_;
};

class GatherTokensAhead : public nn::LayerParallel {
 public:
  GatherTokensAhead(const Group& group, const std::string& name)
      : rows_(c10::make_intrusive<TokenExchange>(group, "input of " + name)) {}
  ops::Activation input(const ops::Activation& x) const override {
    return nn::WholeTokensScope::is_in_force() ? x : ops::exchange(x, rows_);
  }

 private:
  c10::intrusive_ptr<ops::RowExchange> rows_;
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
        gather_(gather_tokens(group, "gradient of the output of " + name)),
        sum_(sum_over(group, "output of " + name)) {}
  at::Tensor output(const at::Tensor& y) const override {
    return nn::WholeTokensScope::is_in_force() ? ops::change_value_(y, sum_)
                                               : ops::exchange_value(y, scatter_, gather_);
  }

 private:
  ops::Transform scatter_, gather_;
  ops::ChangeInPlace sum_;
};

class ScatterTokensAhead : public nn::RowOutput {
 public:
  ScatterTokensAhead(const Group& group, const std::string& name)
      : rows_(c10::make_intrusive<TokenExchange>(group, "output of " + name)),
        sum_(sum_over(group, "output of " + name)) {}
  c10::intrusive_ptr<ops::RowExchange> output_rows() const override {
    return nn::WholeTokensScope::is_in_force() ? nullptr : rows_;
  }
  at::Tensor output(const at::Tensor& y) const override { return ops::change_value_(y, sum_); }

 private:
  c10::intrusive_ptr<ops::RowExchange> rows_;
  ops::ChangeInPlace sum_;
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
    if (nn::WholeTokensScope::is_in_force()) return y;
    const int64_t size = num_own_tokens(y, *group_);
    return y.narrow(0, group_->rank() * size, size);
  }

 private:
  Group group_;
};

// Gathers logits along the vocabulary: [tokens, own part] -> [tokens, vocabulary]. In the backward every rank
// has the gradient of all logits and keeps that of its part.
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
  return [group, what, op](const at::Tensor& value) {
    group->all_reduce(value, false, {comm::hint(what), op});
  };
}

Exchange region_input(const Group& group, const std::string& name, const TensorParallelOptions& options) {
  if (options.sequence_parallel && options.async) return std::make_shared<GatherTokensAhead>(group, name);
  if (options.sequence_parallel) return std::make_shared<GatherTokens>(group, name);
  return std::make_shared<SumGradients>(group, name);
}

Exchange region_output(const Group& group, const std::string& name, const TensorParallelOptions& options) {
  if (options.sequence_parallel) return std::make_shared<ScatterTokens>(group, name);
  return std::make_shared<SumOutputs>(group, name);
}

Exchange product_output(const Group& group, const std::string& name, const TensorParallelOptions& options) {
  if (options.sequence_parallel && options.async) return std::make_shared<ScatterTokensAhead>(group, name);
  return region_output(group, name, options);
}

Exchange summed_region(const Group& group, const std::string& name, const TensorParallelOptions& options) {
  // Rows are sorted by expert before they are multiplied, so products cannot take them as they arrive.
  return std::make_shared<SummedRegion>(
      region_input(group, name, {.sequence_parallel = options.sequence_parallel}),
      region_output(group, name, options), group->size());
}

Exchange own_tokens(const Group& group) { return std::make_shared<OwnTokens>(group); }

Exchange whole_head(const Group& group) { return std::make_shared<WholeHead>(group); }

Exchange head_exchange(const Group& group, const std::vector<RankAxis>& axes, const Layout& weight,
                       const TensorParallelOptions& options) {
  // The loss works on chunks of rows of its own choice, so it cannot take them as they arrive.
  const Exchange input =
      region_input(group, "the output projection", {.sequence_parallel = options.sequence_parallel});
  return std::make_shared<HeadExchange>(input, axes, weight);
}

}  // namespace tessera::parallel::detail
