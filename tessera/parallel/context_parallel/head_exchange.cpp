#include "tessera/parallel/context_parallel/head_exchange.h"

#include <utility>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "tessera/parallel/layout.h"

namespace tessera::parallel {
namespace {

using Counts = std::vector<int64_t>;
using Group = std::shared_ptr<comm::Communicator>;

at::Tensor exchange(const at::Tensor& flat, const Counts& to_come, const Counts& to_go, const Group& group) {
  int64_t total = 0;
  for (const int64_t count : to_come) total += count;
  const at::Tensor received = at::empty({total}, flat.options());
  group->all_to_all_v(received, flat.contiguous(), to_come, to_go, false,
                      {comm::hint("heads of context parallel ranks")});
  return received;
}

struct Exchange : torch::autograd::Function<Exchange> {
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& flat,
                            const Counts& to_come, const Counts& to_go, const Group& group) {
    ctx->saved_data["to_come"] = to_come;
    ctx->saved_data["to_go"] = to_go;
    ctx->saved_data["back"] = c10::IValue::make_capsule(c10::make_intrusive<Back>(group));
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    return exchange(flat, to_come, to_go, group);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 const torch::autograd::variable_list& grads) {
    const auto back = c10::static_intrusive_pointer_cast<Back>(ctx->saved_data["back"].toCapsule());
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    return {exchange(grads[0], ctx->saved_data["to_go"].toIntVector(),
                     ctx->saved_data["to_come"].toIntVector(), back->group),
            {},
            {},
            {}};
  }

  struct Back : torch::CustomClassHolder {
    explicit Back(Group of) : group(std::move(of)) {}
    Group group;
  };
};

int64_t count_of(const std::vector<nn::TokenRun>& runs) {
  int64_t count = 0;
  for (const nn::TokenRun& run : runs) count += run.count;
  return count;
}

// Returns the places of the runs' tokens in the line, [tokens] int64.
at::Tensor places_of(const std::vector<nn::TokenRun>& runs, const at::TensorOptions& options) {
  const auto int_options = options.dtype(at::kLong);
  std::vector<at::Tensor> places = {at::empty({0}, int_options)};
  for (const nn::TokenRun& run : runs) {
    places.push_back(at::arange(run.first, run.first + run.count, int_options));
  }
  return at::cat(places);
}

}  // namespace

SharedTokens whole_line(const TokenSplit& split) {
  SharedTokens tokens;
  for (int64_t rank = 0; rank < split.num_ranks(); ++rank) tokens.of_rank.push_back(split.runs(rank));
  int64_t count = 0;
  for (const auto& runs : tokens.of_rank) count += count_of(runs);
  tokens.line = {{0, count}};
  return tokens;
}

HeadExchange::HeadExchange(const SharedTokens& tokens, int64_t num_heads, Group group, at::Device device)
    : group_(std::move(group)), num_heads_(num_heads) {
  const auto [first, size] = piece_of(num_heads, group_->size(), group_->rank(), 1);
  first_head_ = first;
  own_heads_ = size;
  std::vector<nn::TokenRun> held;  // the shared tokens as they arrive: one rank's after the other's
  for (const std::vector<nn::TokenRun>& theirs : tokens.of_rank) {
    tokens_of_rank_.push_back(count_of(theirs));
    held.insert(held.end(), theirs.begin(), theirs.end());
  }
  const at::TensorOptions options(device);
  const at::Tensor line_places = places_of(tokens.line, options),
                   by_place = at::argsort(places_of(held, options));
  from_held_ = by_place.index_select(0, at::argsort(at::argsort(line_places)));
  from_line_ = at::argsort(from_held_);
}

at::Tensor HeadExchange::to_heads(const std::function<at::Tensor(int64_t first, int64_t count)>& part,
                                  int64_t width) const {
  const int64_t own_tokens = tokens_of_rank_[static_cast<size_t>(group_->rank())];
  std::vector<at::Tensor> parts;
  Counts to_come, to_go;
  for (int64_t other = 0; other < group_->size(); ++other) {
    const auto [first, count] = piece_of(num_heads_, group_->size(), other, 1);
    parts.push_back(part(first, count).flatten());
    to_go.push_back(own_tokens * count * width);
    to_come.push_back(tokens_of_rank_[static_cast<size_t>(other)] * own_heads_ * width);
  }
  return Exchange::apply(at::cat(parts), to_come, to_go, group_)
      .view({from_held_.size(0), own_heads_ * width})
      .index_select(0, from_held_);
}

at::Tensor HeadExchange::to_tokens(const at::Tensor& x, int64_t width) const {
  const int64_t own_tokens = tokens_of_rank_[static_cast<size_t>(group_->rank())];
  Counts to_come, to_go;
  for (int64_t other = 0; other < group_->size(); ++other) {
    to_come.push_back(own_tokens * piece_of(num_heads_, group_->size(), other, 1).size * width);
    to_go.push_back(tokens_of_rank_[static_cast<size_t>(other)] * own_heads_ * width);
  }
  const at::Tensor back = Exchange::apply(x.index_select(0, from_line_).flatten(), to_come, to_go, group_);
  std::vector<at::Tensor> heads;
  int64_t at = 0;
  for (int64_t other = 0; other < group_->size(); ++other) {
    const int64_t size = to_come[static_cast<size_t>(other)];
    const int64_t columns = piece_of(num_heads_, group_->size(), other, 1).size * width;
    heads.push_back(back.narrow(0, at, size).view({own_tokens, columns}));
    at += size;
  }
  return at::cat(heads, 1);
}

}  // namespace tessera::parallel
