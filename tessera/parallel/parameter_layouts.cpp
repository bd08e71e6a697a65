#include "tessera/parallel/parameter_layouts.h"

#include "tessera/core/error.h"
#include "tessera/core/torch_dtype.h"

namespace tessera::parallel {

std::vector<int64_t> ParameterLayouts::coordinates() const {
  std::vector<int64_t> coordinates;
  for (const RankAxis& axis : axes_) coordinates.push_back(axis.group->rank());
  return coordinates;
}

void ParameterLayouts::set(const at::Tensor& parameter, Layout layout) {
  TESSERA_ASSERT(layout.axes().size() == axes_.size(), "one placement for each axis");
  TESSERA_ASSERT(layout.local_box(coordinates()).size == parameter.sizes().vec(),
                 "a parameter has the shape of its part");
  layouts_.insert_or_assign(parameter.unsafeGetTensorImpl(), std::move(layout));
}

Layout ParameterLayouts::of(const at::Tensor& parameter) const {
  const auto found = layouts_.find(parameter.unsafeGetTensorImpl());
  if (found != layouts_.end()) return found->second;
  std::vector<AxisPlacement> axes;
  for (const RankAxis& axis : axes_) axes.push_back({axis.name, axis.group->size(), Placement::replicate()});
  return Layout(parameter.sizes().vec(), to_dtype(parameter.scalar_type()), std::move(axes));
}

}  // namespace tessera::parallel
