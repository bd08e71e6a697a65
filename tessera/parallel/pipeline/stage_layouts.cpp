#include "tessera/parallel/pipeline/stage_layouts.h"

#include <algorithm>
#include <set>
#include <utility>

#include <ATen/ATen.h>

#include "tessera/core/error.h"
#include "tessera/nn/materialize.h"

namespace tessera::parallel {
namespace {

// A tag that no message between stages has.
constexpr int kTag = comm::P2pOp::kTagLimit - 1;

// Returns the other ranks that hold the parameter along the axis; empty if there are none or this rank does
// not hold it.
std::vector<int64_t> other_holders(const ShardedParameter& parameter, const std::string& axis, int64_t rank) {
  for (const AxisPlacement& placed : parameter.layout.axes()) {
    if (placed.axis != axis || placed.placement.kind != Placement::Kind::Held) continue;
    std::vector<int64_t> others = placed.placement.holders;
    return std::erase(others, rank) > 0 ? others : std::vector<int64_t>();
  }
  return {};
}

}  // namespace

ParameterLayouts hold_by_stage(torch::nn::Module& root, const ParameterLayouts& layouts, const RankAxis& axis,
                               const HoldersOf& holders_of) {
  std::vector<RankAxis> axes = layouts.axes();
  axes.push_back(axis);
  ParameterLayouts held(std::move(axes));
  std::set<const c10::TensorImpl*> seen;  // a shared parameter occurs under several names
  for (at::Tensor& parameter : root.parameters()) {
    if (!seen.insert(parameter.unsafeGetTensorImpl()).second) continue;
    Layout layout = layouts.of(parameter).with(
        {axis.name, axis.group->size(), Placement::held_by(holders_of(parameter)), false});
    const Box box = layout.local_box(coordinates_on(held.axes()));
    if (box.size != parameter.sizes().vec()) {
      nn::materialize(parameter, at::empty(box.size, parameter.options().requires_grad(false)));
    }
    held.set(parameter, std::move(layout));
  }
  return held;
}

void complete_gradients(const ShardedModel& model, const RankAxis& axis) {
  const at::NoGradGuard no_grad;
  const int64_t rank = axis.group->rank();
  std::vector<comm::P2pOp> messages;
  struct Sum {
    const ShardedParameter* parameter;
    // The rank and gradient of each holder, in the order of the ranks.
    std::vector<std::pair<int64_t, at::Tensor>> parts;
  };
  std::vector<Sum> sums;
  for (const ShardedParameter& parameter : model.parameters()) {
    if (!parameter.requires_grad) continue;
    const at::Tensor tile = parameter.tile.detach();
    const std::vector<int64_t> others = other_holders(parameter, axis.name, rank);
    if (tile.numel() == 0 || others.empty()) continue;
    const at::Tensor own = parameter.tile.grad().defined() ? parameter.tile.grad().contiguous()
                                                           : at::zeros_like(tile, model.device());
    Sum& sum = sums.emplace_back(Sum{&parameter, {{rank, own}}});
    for (const int64_t other : others) {
      sum.parts.emplace_back(other, at::empty_like(own));
      messages.push_back(comm::isend(own, other, kTag));
      messages.push_back(comm::irecv(sum.parts.back().second, other, kTag));
    }
    std::sort(sum.parts.begin(), sum.parts.end(),
              [](const auto& a, const auto& b) { return a.first < b.first; });
  }
  if (messages.empty()) return;
  axis.group->batch_p2p(std::move(messages), false, {comm::hint("gradients of tied weights")});
  for (const Sum& sum : sums) {
    // Every rank adds the parts in the order of the ranks, so all get the same bits.
    at::Tensor total = sum.parts.front().second.clone();
    for (size_t i = 1; i < sum.parts.size(); ++i) total.add_(sum.parts[i].second);
    sum.parameter->tile.mutable_grad() = total;
  }
}

}  // namespace tessera::parallel
