#include "tessera/parallel/parameter_layouts.h"

#include <utility>

#include <ATen/ATen.h>

#include "tessera/core/error.h"
#include "tessera/device/torch_dtype.h"
#include "tessera/nn/materialize.h"

namespace tessera::parallel {

std::vector<int64_t> coordinates_on(const std::vector<RankAxis>& axes) {
  std::vector<int64_t> coordinates;
  for (const RankAxis& axis : axes) coordinates.push_back(axis.group->rank());
  return coordinates;
}

void ParameterLayouts::set(const at::Tensor& parameter, Layout layout) {
  TESSERA_ASSERT(layout.axes().size() == axes_.size(), "one placement for each axis");
  TESSERA_ASSERT(layout.local_box(coordinates_on(axes_)).size == parameter.sizes().vec(),
                 "a parameter has the shape of its part");
  layouts_.insert_or_assign(parameter.unsafeGetTensorImpl(), std::move(layout));
}

void ParameterLayouts::set_apart(at::Tensor parameter, const RankAxis& axis, std::vector<int64_t> holders,
                                 const ShardGroups& groups) {
  TESSERA_ASSERT(parameter.is_meta(), "experts are spread before there are values");
  Layout layout =
      of(parameter).with({axis.name, axis.group->size(), Placement::held_by(std::move(holders)), false});
  const c10::TensorImpl* const key = parameter.unsafeGetTensorImpl();
  apart_.insert_or_assign(key, Apart{axis, groups});
  const Box box = layout.local_box(coordinates_on(axes_of(parameter)));
  if (box.size != parameter.sizes().vec()) {
    nn::materialize(parameter, at::empty(box.size, parameter.options().requires_grad(false)));
  }
  layouts_.insert_or_assign(key, std::move(layout));
}

std::vector<RankAxis> ParameterLayouts::axes_of(const at::Tensor& parameter) const {
  std::vector<RankAxis> axes = axes_;
  const auto found = apart_.find(parameter.unsafeGetTensorImpl());
  if (found != apart_.end()) axes.push_back(found->second.axis);
  return axes;
}

const ShardGroups* ParameterLayouts::groups_of(const at::Tensor& parameter) const {
  const auto found = apart_.find(parameter.unsafeGetTensorImpl());
  return found == apart_.end() ? nullptr : &found->second.groups;
}

Layout ParameterLayouts::of(const at::Tensor& parameter) const {
  const auto found = layouts_.find(parameter.unsafeGetTensorImpl());
  if (found != layouts_.end()) return found->second;
  std::vector<AxisPlacement> axes;
  for (const RankAxis& axis : axes_) axes.push_back({axis.name, axis.group->size(), Placement::replicate()});
  return Layout(parameter.sizes().vec(), to_dtype(parameter.scalar_type()), std::move(axes));
}

}  // namespace tessera::parallel
