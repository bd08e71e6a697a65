// Reduces the gradients of a unit to the ranks that own its parameters.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "tessera/comm/communicator.h"
#include "tessera/parallel/fsdp/unit_param.h"

namespace tessera::parallel::detail {

// Sums the gradients of each parameter over every axis of its layout that asks for it: by a reduce-scatter
// along the sharded axis and by all-reduces along the others. All parameters of one type and the same axes
// are reduced in one operation, and those that are sent in codes in one of their own. If no axis of more than
// one rank sums them, gradients are kept as they are.
class GradientReduce {
 public:
  // `params` must outlive the object; empty parameters are left out. `axes` are those of the parameters'
  // layouts, the sharded one last; `groups` are those that make the last two. The sums are divided by
  // `divisor`. `hint` names the unit in errors.
  GradientReduce(std::vector<UnitParam>& params, std::vector<RankAxis> axes, ShardGroups groups,
                 const MixedPrecisionPolicy& policy, double divisor, std::string hint);

  // Returns whether there is anything to do beyond what autograd does.
  bool is_needed() const { return is_needed_; }
  // Has the gradients counted, started and finished as if there were something to do.
  void count_always() { is_needed_ = true; }
  // Notes that the gradient of params[i] has been accumulated. Returns true if it was the last missing one.
  bool note_gradient(size_t i);
  // Returns whether any gradient has been accumulated in this backward.
  bool has_any() const { return num_gradients_ > 0; }
  // Turns start() off until end_backward(): the reduction is started after this backward.
  void postpone();
  // Starts the reduction of the gradients that are there (zeros for the others); does nothing at later calls
  // in the same backward. `is_last`: no gradients come after these in this step. Collective.
  void start(bool is_last);
  // Returns whether a reduction with `is_last` was started and its end_backward() has not come yet.
  bool is_last_started() const { return is_last_started_; }
  // Returns whether finish() would wait for other ranks.
  bool is_waiting() const { return !works_.empty(); }
  // Waits for the reduction and adds the sums to tile.grad(). Returns false, and does nothing, if none was
  // started since the last call.
  bool finish();
  // Waits for what is in flight and drops it. Afterwards no gradient counts as arrived.
  void cancel();
  // Prepares for the next backward. Call it when the backward is over and finish() has returned.
  void end_backward();

 private:
  enum class State { Collecting, Postponed, InFlight, Reduced };

  struct Bucket {
    at::ScalarType type = at::kFloat;
    std::vector<size_t> summed_over;              // numbers of the axes, the sharded one left out
    bool is_scattered = false, is_coded = false;  // is_coded: gradients are sent in codes
    std::vector<UnitParam*> params;
    at::Tensor buffer;                // while in flight: the reduced gradients of all tiles,
    std::vector<at::Tensor> reduced;  // and views of it, one for each tile

    bool is_reduced() const { return is_scattered || !summed_over.empty(); }
  };

  Bucket& bucket_of(const UnitParam& param, at::ScalarType type);
  // Starts the reduce-scatter of the bucket's gradients: the one place that chooses how they are sent.
  std::shared_ptr<comm::Work> scatter(Bucket& bucket) const;
  // Takes the bucket's gradients from the parameters and allocates the buffer for the sums.
  std::vector<comm::ScatterPart> take_gradients(Bucket& bucket) const;
  // Moves the gradient of a parameter that is not summed to its tile, or adds it there. It may stay with the
  // parameter until the step's last backward if it has the tile's type.
  void keep_gradient(UnitParam& param, bool is_last) const;

  std::vector<UnitParam>& params_;
  const std::vector<RankAxis> axes_;
  const ShardGroups groups_;
  const bool keeps_narrow_;
  const double divisor_;
  const std::string hint_;
  std::vector<Bucket> buckets_;
  bool is_needed_ = false, is_last_started_ = false;
  int64_t num_trained_ = 0, num_gradients_ = 0;
  State state_ = State::Collecting;
  std::vector<std::shared_ptr<comm::Work>> works_;
};

}  // namespace tessera::parallel::detail
