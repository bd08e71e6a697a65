// Sends rows to the experts of other ranks, and their results back.
#pragma once

#include <memory>

#include "tessera/comm/communicator.h"
#include "tessera/nn/sparse_mlp.h"

namespace tessera::parallel {

// Expert e lies on the rank whose piece_of() the experts contains it. Ranks first tell each other how many
// rows they send for each expert, then send exactly these: two all-to-alls of rows in the forward and two in
// the backward, of any sizes. See [Note: order of dispatched rows] in expert_dispatch.cpp.
class ExpertDispatch : public nn::ExpertCore {
 public:
  explicit ExpertDispatch(std::shared_ptr<comm::Communicator> group) : group_(std::move(group)) {}

  // rows: [n, hidden_size], sorted by expert; `ends` and the result are as in nn::ExpertCore::run().
  // `experts` has all experts; those of other ranks are empty and are not run. The host reads the numbers of
  // rows, so it waits for the device. Collective over the group, in the forward and in the backward.
  at::Tensor run(const at::Tensor& rows, const at::Tensor& ends, const nn::Experts& experts) const override;

 private:
  std::shared_ptr<comm::Communicator> group_;
};

}  // namespace tessera::parallel
