#include "tessera/parallel/fsdp/gradient_reduce.h"

#include <utility>

#include <ATen/ATen.h>

#include "tessera/device/memory_scope.h"
#include "tessera/parallel/fsdp/coded_reduce.h"

namespace tessera::parallel::detail {

GradientReduce::GradientReduce(std::vector<UnitParam>& params, std::vector<RankAxis> axes, ShardGroups groups,
                               const MixedPrecisionPolicy& policy, double divisor, std::string hint)
    : params_(params),
      axes_(std::move(axes)),
      groups_(std::move(groups)),
      keeps_narrow_(policy.keeps_narrow_gradients),
      divisor_(divisor),
      hint_(std::move(hint)) {
  for (UnitParam& param : params) {
    if (!param.is_trained() || param.parameter.numel() == 0) continue;
    ++num_trained_;
    const at::ScalarType computed = param.parameter.scalar_type();
    const at::ScalarType type = policy.reduce_dtype.value_or(computed);
    if (policy.codes_gradients) param.gradient_codes = param.make_codes(4, type);
    Bucket& bucket = bucket_of(param, type);
    bucket.params.push_back(&param);
    is_needed_ = is_needed_ || bucket.is_reduced() || !param.is_tile;
    param.gradient_type = keeps_narrow_ && !bucket.is_reduced() ? computed : type;
  }
}

GradientReduce::Bucket& GradientReduce::bucket_of(const UnitParam& param, at::ScalarType type) {
  Bucket wanted;
  wanted.type = type;
  for (size_t a = axes_.size(); a-- > 0;) {
    if (axes_[a].group->size() == 1 || !param.owned->layout.axes()[a].sums_gradient) continue;
    if (a + 1 == axes_.size()) {
      wanted.is_scattered = true;
    } else {
      wanted.summed_over.push_back(a);
    }
  }
  wanted.is_coded = wanted.is_scattered && param.gradient_codes.has_value();
  for (Bucket& bucket : buckets_) {
    if (bucket.type == wanted.type && bucket.is_scattered == wanted.is_scattered &&
        bucket.is_coded == wanted.is_coded && bucket.summed_over == wanted.summed_over) {
      return bucket;
    }
  }
  return buckets_.emplace_back(std::move(wanted));
}

bool GradientReduce::note_gradient(size_t i) {
  // A parameter counts once, however often its accumulator runs.
  if (std::exchange(params_[i].has_gradient, true)) return false;
  return ++num_gradients_ == num_trained_;
}

std::vector<comm::ScatterPart> GradientReduce::take_gradients(Bucket& bucket) const {
  const MemoryScope memory(MemoryCategory::Gradients);
  int64_t numel = 0;
  for (const UnitParam* param : bucket.params) numel += param->owned->tile.numel();
  const at::Device device = bucket.params.front()->parameter.device();
  // The buffer gets only the sums for this rank's tiles. The whole gradients are read where they lie, in any
  // type, and are released as soon as the operation is done with them.
  bucket.buffer = at::empty({numel}, at::TensorOptions().dtype(bucket.type).device(device));
  std::vector<comm::ScatterPart> parts;
  int64_t offset = 0;
  for (UnitParam* param : bucket.params) {
    const at::Tensor& tile = param->owned->tile;
    bucket.reduced.push_back(bucket.buffer.narrow(0, offset, tile.numel()).view(tile.sizes()));
    offset += tile.numel();
    at::Tensor& grad = param->parameter.mutable_grad();
    parts.push_back(
        {grad.defined() ? grad.detach().contiguous() : at::Tensor(), bucket.reduced.back(), param->pieces});
    grad.reset();
  }
  return parts;
}

std::shared_ptr<comm::Work> GradientReduce::scatter(Bucket& bucket) const {
  std::vector<comm::ScatterPart> parts = take_gradients(bucket);
  if (!bucket.is_coded) {
    return axes_.back().group->reduce_scatter_parts(std::move(parts), bucket.type, true, {comm::hint(hint_)});
  }
  std::vector<CodedPart> coded;
  for (size_t i = 0; i < parts.size(); ++i)
    coded.push_back({std::move(parts[i]), *bucket.params[i]->gradient_codes});
  auto work = start_coded_reduce(std::move(coded), groups_, hint_);
  // The sums are written in wait(), so what reads them cannot be put behind the work without one.
  if (!bucket.summed_over.empty()) work->wait();
  return work;
}

void GradientReduce::keep_gradient(UnitParam& param, bool is_last) const {
  at::Tensor& arrived_here = param.parameter.mutable_grad();
  if (param.is_tile || !arrived_here.defined()) return;
  const at::ScalarType stored = param.owned->tile.scalar_type();
  // A gradient in the tile's type stays with the parameter, where autograd adds the next micro-batch's to it.
  if (!is_last && arrived_here.scalar_type() == stored) return;
  const at::Tensor arrived = std::move(arrived_here);
  arrived_here.reset();
  at::Tensor& grad = param.owned->tile.mutable_grad();
  if (grad.defined()) {
    grad = grad.to(stored).add_(arrived);
  } else {
    grad = keeps_narrow_ ? arrived : arrived.to(stored);
  }
}

void GradientReduce::postpone() {
  if (state_ == State::Collecting) state_ = State::Postponed;
}

void GradientReduce::start(bool is_last) {
  if (!is_needed_ || state_ != State::Collecting) return;
  const at::NoGradGuard no_grad;
  state_ = State::InFlight;
  is_last_started_ = is_last;
  for (Bucket& bucket : buckets_) {
    if (!bucket.is_reduced()) {
      for (UnitParam* param : bucket.params) keep_gradient(*param, is_last);
      continue;
    }
    // The all-reduces add up sums, so each starts behind the operation before it (the option `after`)
    // although nobody waits for that on the host. If the sharded axis has one rank, the reduce-scatter just
    // packs the gradients into the buffer, in the type of the reduction.
    works_.push_back(scatter(bucket));
    for (const size_t axis : bucket.summed_over) {
      works_.push_back(
          axes_[axis].group->all_reduce(bucket.buffer, true, {comm::hint(hint_, works_.back())}));
    }
  }
}

bool GradientReduce::finish() {
  if (state_ != State::InFlight) return false;
  const at::NoGradGuard no_grad;
  for (const auto& work : works_) work->wait();
  works_.clear();
  for (Bucket& bucket : buckets_) {
    if (!bucket.buffer.defined()) continue;
    if (divisor_ != 1.0) bucket.buffer.div_(divisor_);
    for (size_t i = 0; i < bucket.params.size(); ++i) {
      const at::Tensor& tile = bucket.params[i]->owned->tile;
      // In the tile's own type `reduced` is a view of the buffer, which then stays as the gradients' memory.
      const at::Tensor reduced = std::move(bucket.reduced[i]).to(tile.scalar_type());
      at::Tensor& grad = tile.mutable_grad();
      if (grad.defined()) {
        grad.add_(reduced);
      } else {
        grad = reduced;
      }
    }
    bucket.reduced.clear();
    bucket.buffer.reset();
  }
  state_ = State::Reduced;
  return true;
}

void GradientReduce::cancel() {
  for (const auto& work : works_) work->wait();
  works_.clear();
  for (Bucket& bucket : buckets_) {
    bucket.reduced.clear();
    bucket.buffer.reset();
  }
  end_backward();
}

void GradientReduce::end_backward() {
  state_ = State::Collecting;
  is_last_started_ = false;
  num_gradients_ = 0;
  for (UnitParam& param : params_) param.has_gradient = false;
}

}  // namespace tessera::parallel::detail
