// How the gradients of a unit come to the ranks that own the parameters.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "tessera/comm/communicator.h"
#include "tessera/parallel/fsdp/unit_param.h"

namespace tessera::parallel::detail {

// Sums the gradients of each parameter over every axis of its layout that says so: by a reduce-scatter along
// the sharded axis, in all-reduces along the others. One operation for all parameters of one type and the
// same axes. Where no axis of more than one rank sums them, they are kept as they are.
class GradientReduce {
 public:
  // `params`, of which empty ones are left out, outlives it. `axes`: of the parameters' layouts, the sharded
  // one last. `divisor`: of the sums.
  GradientReduce(std::vector<UnitParam>& params, std::vector<RankAxis> axes,
                 const MixedPrecisionPolicy& policy, double divisor, std::string hint);

  // Whether there is anything to do beyond what autograd does.
  bool is_needed() const { return is_needed_; }
  // A gradient of params[i] has been accumulated; true when it was the last one that is missing.
  bool note_gradient(size_t i);
  // Whether a gradient has been accumulated in this backward.
  bool has_any() const { return num_gradients_ > 0; }
  // In this backward start() does nothing: it is called behind it.
  void postpone();
  // Sends what gradients there are (zeros for the others); once in a backward. `is_last`: none comes after in
  // this step.
  void start(bool is_last);
  // Whether start() was told so since the step began.
  bool is_last_started() const { return is_last_started_; }
  // Adds the sums to tile.grad().
  void finish();
  // Waits for what is in flight, and drops it. None has arrived for the next backward.
  void cancel();
  // The backward is over, and what it sent has arrived.
  void end_backward();

 private:
  enum class State { Collecting, Postponed, InFlight, Reduced };

  struct Bucket {
    at::ScalarType type = at::kFloat;
    std::vector<size_t> summed_over;  // numbers of the axes, besides the sharded one
    bool is_scattered = false;
    std::vector<UnitParam*> params;
    at::Tensor buffer;                // while in flight: the gradients of all tiles,
    std::vector<at::Tensor> reduced;  // and of each

    bool is_reduced() const { return is_scattered || !summed_over.empty(); }
  };

  Bucket& bucket_of(const UnitParam& param, at::ScalarType type);
  // The bucket's gradients, which are taken from the parameters.
  std::vector<comm::ScatterPart> take_gradients(Bucket& bucket) const;
  // Adds the gradient of a parameter that is not summed to the tile's, after the step's last one at the
  // latest.
  void keep_gradient(UnitParam& param, bool is_last) const;

  std::vector<UnitParam>& params_;
  const std::vector<RankAxis> axes_;
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
