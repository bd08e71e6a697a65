// What other kinds of parallelism have cut of a module before fully_shard() cuts it further.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include <ATen/core/Tensor.h>

#include "tessera/comm/communicator.h"
#include "tessera/parallel/layout.h"

namespace tessera::parallel {

// A mesh axis as a rank stands on it.
struct RankAxis {
  std::string name;
  std::shared_ptr<comm::Communicator> group;  // the ranks that differ along it alone
};

// The layouts of a module's parameters, which hold this rank's parts already. By tensor, so that a shared
// parameter has one.
class ParameterLayouts {
 public:
  ParameterLayouts() = default;
  explicit ParameterLayouts(std::vector<RankAxis> axes) : axes_(std::move(axes)) {}

  // The axes of every layout, in the order in which they cut.
  const std::vector<RankAxis>& axes() const { return axes_; }
  std::vector<int64_t> coordinates() const;

  // `parameter` has the shape of this rank's part of a tensor of layout `layout`, which has one placement for
  // each of axes().
  void set(const at::Tensor& parameter, Layout layout);
  // The layout that was set, or that of a parameter which every rank holds whole, with the same gradient.
  Layout of(const at::Tensor& parameter) const;

 private:
  std::vector<RankAxis> axes_;
  std::unordered_map<const c10::TensorImpl*, Layout> layouts_;
};

}  // namespace tessera::parallel
