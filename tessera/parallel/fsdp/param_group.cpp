#include "tessera/parallel/fsdp/param_group.h"

#include <cstring>

#include <ATen/ATen.h>
#include <ATen/native/Resize.h>

#include "tessera/core/error.h"

namespace tessera::parallel::detail {
namespace {

// Pieces start on cache lines.
constexpr int64_t kAlignment = 64;

int64_t align(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

void set_storage_bytes(const at::Tensor& tensor, int64_t num_bytes) {
  at::native::resize_bytes_cpu(tensor.storage().unsafeGetStorageImpl(), static_cast<size_t>(num_bytes));
}

}  // namespace

ParamGroup::ParamGroup(std::string name, ShardGroups groups, const ShardOptions& options,
                       std::vector<ShardedParameter>& parameters)
    : name_(std::move(name)), groups_(std::move(groups)), options_(options), parameters_(parameters) {}

void ParamGroup::add(const at::Tensor& parameter, int64_t index) {
  GroupParam param;
  param.gathered = parameter;
  param.index = index;
  param.rows = parameter.dim() == 0 ? 1 : parameter.size(0);
  param.row_numel = param.rows == 0 ? 0 : parameter.numel() / param.rows;
  param.padded_rows = piece_of(param.rows, groups_.shard->size(), 0).size;
  params_.push_back(std::move(param));
}

void ParamGroup::finish_setup() {
  for (GroupParam& param : params_) {
    const ShardedParameter& owned = parameters_[param.index];
    const int64_t piece = param.padded_rows * param.row_numel;
    param.gather_offset = gather_bytes_;
    gather_bytes_ += align(piece * static_cast<int64_t>(param.gathered.element_size()));
    needs_gather_ = needs_gather_ || !owned.tile.is_same(param.gathered);
    if (!owned.requires_grad) continue;
    ++num_trainable_;
    const at::ScalarType type = options_.mixed_precision.reduce_dtype.value_or(param.gathered.scalar_type());
    while (param.bucket < buckets_.size() && buckets_[param.bucket].type != type) ++param.bucket;
    if (param.bucket == buckets_.size()) buckets_.push_back({type, 0, {}});
    param.bucket_offset = buckets_[param.bucket].numel;
    buckets_[param.bucket].numel += piece;
  }
  is_gathered_ = !needs_gather_;
}

void ParamGroup::start_unshard() {
  if (is_gathered_ || gather_work_ != nullptr) return;
  const at::NoGradGuard no_grad;
  const int64_t rank = groups_.shard->rank();
  gather_buffer_ = at::empty({groups_.shard->size() * gather_bytes_}, at::kByte);
  const at::Tensor own = gather_buffer_.narrow(0, rank * gather_bytes_, gather_bytes_);
  for (const GroupParam& param : params_) {
    const at::Tensor& tile = parameters_[param.index].tile;
    TESSERA_ASSERT(tile.defined(), "parameter " + parameters_[param.index].name + " has no value yet");
    if (tile.numel() == 0) continue;
    // Casts to the compute type on the way.
    void* target = static_cast<char*>(own.mutable_data_ptr()) + param.gather_offset;
    at::from_blob(target, tile.sizes(), param.gathered.options().requires_grad(false)).copy_(tile.detach());
  }
  gather_work_ =
      groups_.shard->all_gather_single(gather_buffer_, own, true, {{{}, "parameters of " + name_}});
}

void ParamGroup::unshard() {
  if (is_gathered_) return;
  start_unshard();
  gather_work_->wait();
  gather_work_ = nullptr;
  copy_out(gather_buffer_);
  gather_buffer_ = at::Tensor();
  is_gathered_ = true;
}

void ParamGroup::copy_out(const at::Tensor& gathered) {
  const auto* source = static_cast<const char*>(gathered.const_data_ptr());
  for (const GroupParam& param : params_) {
    const int64_t row_bytes = param.row_numel * static_cast<int64_t>(param.gathered.element_size());
    set_storage_bytes(param.gathered, param.rows * row_bytes);
    // Through the raw pointer: a write that autograd does not see as a new version.
    auto* target = static_cast<char*>(param.gathered.storage().mutable_data());
    for (int64_t rank = 0; rank < groups_.shard->size(); ++rank) {
      const Piece piece = piece_of(param.rows, groups_.shard->size(), rank);
      if (piece.size == 0) break;
      std::memcpy(target + piece.begin * row_bytes, source + rank * gather_bytes_ + param.gather_offset,
                  static_cast<size_t>(piece.size * row_bytes));
    }
  }
}

void ParamGroup::reshard() {
  if (!needs_gather_) return;
  if (gather_work_ != nullptr) unshard();  // a prefetch that nobody used
  if (!is_gathered_) return;
  for (const GroupParam& param : params_) set_storage_bytes(param.gathered, 0);
  is_gathered_ = false;
}

bool ParamGroup::note_gradient(size_t i) {
  if (params_[i].has_gradient) return false;
  params_[i].has_gradient = true;
  return ++num_gradients_ == num_trainable_;
}

at::Tensor ParamGroup::pack_gradients(const Bucket& bucket, size_t bucket_index) {
  const int64_t num_ranks = groups_.shard->size();
  const at::Tensor packed = at::zeros({num_ranks, bucket.numel}, at::TensorOptions().dtype(bucket.type));
  for (GroupParam& param : params_) {
    if (!parameters_[param.index].requires_grad || param.bucket != bucket_index) continue;
    at::Tensor& grad = param.gathered.mutable_grad();
    if (grad.defined()) {
      const at::Tensor rows = grad.detach().reshape({param.rows, param.row_numel});
      for (int64_t rank = 0; rank < num_ranks; ++rank) {
        const Piece piece = piece_of(param.rows, num_ranks, rank);
        if (piece.size == 0) break;
        packed.select(0, rank)
            .narrow(0, param.bucket_offset, piece.size * param.row_numel)
            .view({piece.size, param.row_numel})
            .copy_(rows.narrow(0, piece.begin, piece.size));
      }
      grad.reset();
    }
  }
  return packed;
}

void ParamGroup::forget_gradients() {
  is_reduced_ = false;
  num_gradients_ = 0;
  for (GroupParam& param : params_) param.has_gradient = false;
}

void ParamGroup::start_reduce() {
  if (num_trainable_ == 0 || !needs_reduce() || is_reduced_) return;
  is_reduced_ = true;
  const at::NoGradGuard no_grad;
  is_reducing_ = true;
  for (size_t b = 0; b < buckets_.size(); ++b) {
    Bucket& bucket = buckets_[b];
    const at::Tensor packed = pack_gradients(bucket, b);
    bucket.reduced = at::empty({bucket.numel}, packed.options());
    const std::string hint = "gradients of " + name_;
    reduce_works_.push_back(groups_.shard->reduce_scatter_single(bucket.reduced, packed, true, {{{}, hint}}));
    if (groups_.replicate->size() == 1) continue;
    // Both groups share one executor unless the first has no transport, so the second starts after the first.
    reduce_works_.push_back(groups_.replicate->all_reduce(bucket.reduced, true, {{{}, hint}}));
  }
}

void ParamGroup::finish_reduce() {
  if (!is_reducing_) return;
  const at::NoGradGuard no_grad;
  for (const auto& work : reduce_works_) work->wait();
  reduce_works_.clear();
  const int64_t num_ranks = groups_.shard->size() * groups_.replicate->size();
  for (const Bucket& bucket : buckets_) {
    if (options_.average_gradients && num_ranks > 1) bucket.reduced.div_(static_cast<double>(num_ranks));
  }
  for (const GroupParam& param : params_) {
    ShardedParameter& owned = parameters_[param.index];
    if (!owned.requires_grad) continue;
    const at::Tensor reduced = buckets_[param.bucket]
                                   .reduced.narrow(0, param.bucket_offset, owned.tile.numel())
                                   .view(owned.tile.sizes())
                                   .to(owned.tile.scalar_type());
    at::Tensor& grad = owned.tile.mutable_grad();
    if (grad.defined()) {
      grad.add_(reduced);
    } else {
      grad = reduced;
    }
  }
  for (Bucket& bucket : buckets_) bucket.reduced = at::Tensor();
  is_reducing_ = false;
}

}  // namespace tessera::parallel::detail
