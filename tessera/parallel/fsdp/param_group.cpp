#include "tessera/parallel/fsdp/param_group.h"

#include <cstring>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/native/Resize.h>

#include "tessera/core/error.h"
#include "tessera/core/memory_ledger.h"
#include "tessera/core/round_up.h"
#include "tessera/ops/cast.h"
#include "tessera/ops/direct_gradient.h"
#include "tessera/parallel/fsdp/hollow.h"

namespace tessera::parallel::detail {
namespace {

// Pieces start on cache lines.
constexpr int64_t kAlignment = 64;

int64_t align(int64_t bytes) { return round_up(bytes, kAlignment); }

void set_storage_bytes(const at::Tensor& tensor, int64_t num_bytes) {
  const MemoryScope memory(MemoryCategory::GatheredParameters);
  at::native::resize_bytes_cpu(tensor.storage().unsafeGetStorageImpl(), static_cast<size_t>(num_bytes));
}

}  // namespace

ParamGroup::ParamGroup(std::string name, ShardGroups groups, const ShardOptions& options,
                       std::vector<ShardedParameter>& parameters, std::shared_ptr<GatherSlots> slots)
    : name_(std::move(name)),
      groups_(std::move(groups)),
      options_(options),
      parameters_(parameters),
      slots_(std::move(slots)) {}

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
    param.slot_offset = slot_bytes_;
    slot_bytes_ += align(param.rows * param.row_numel * static_cast<int64_t>(param.gathered.element_size()));
    param.is_tile = owned.tile.is_same(param.gathered);
    needs_gather_ = needs_gather_ || !param.is_tile;
    if (!param.is_tile) {
      const at::ScalarType type = param.gathered.scalar_type();
      param.whole = param.gathered.detach();
      param.hollow = make_hollow(param.gathered.sizes(), type, owned.name, name_);
      put_in_place(param.gathered, param.hollow);
    }
    if (!owned.requires_grad) continue;
    ++num_trainable_;
    const at::ScalarType type = options_.mixed_precision.reduce_dtype.value_or(param.gathered.scalar_type());
    param.gradient_type = keeps_narrow_gradients() ? param.gathered.scalar_type() : type;
    while (param.bucket < buckets_.size() && buckets_[param.bucket].type != type) ++param.bucket;
    if (param.bucket == buckets_.size()) buckets_.push_back({type, {}});
  }
  is_gathered_ = !needs_gather_;
}

void ParamGroup::accumulate_directly() {
  for (GroupParam& param : params_) {
    if (!parameters_[param.index].requires_grad) continue;
    // The mark comes and goes with the memory.
    for (const at::Tensor& tensor : {param.gathered, param.whole, param.hollow}) {
      if (tensor.defined()) ops::accumulate_directly(tensor, param.gradient_type);
    }
  }
}

const at::Tensor& ParamGroup::tile_of(const GroupParam& param) const { return parameters_[param.index].tile; }

void ParamGroup::start_unshard() {
  if (is_gathered_ || gather_work_ != nullptr || groups_.shard->size() == 1) return;
  const at::NoGradGuard no_grad;
  slot_ = slots_->take(slot_bytes_);
  if (slot_.defined()) {
    start_gather_in_slot();
  } else {
    start_gather_by_copy();
  }
}

void ParamGroup::start_gather_in_slot() {
  std::vector<std::pair<at::Tensor, at::Tensor>> rows;  // to, from
  char* const slot = static_cast<char*>(slot_.mutable_data_ptr());
  for (const GroupParam& param : params_) {
    const at::Tensor tile = tile_of(param).detach();
    if (tile.numel() == 0) continue;
    const int64_t row_bytes = param.row_numel * static_cast<int64_t>(param.gathered.element_size());
    const int64_t first_row = parameters_[param.index].box.offset[0];
    rows.emplace_back(at::from_blob(slot + param.slot_offset + first_row * row_bytes, tile.sizes(),
                                    param.gathered.options().requires_grad(false)),
                      tile);
  }
  gather_work_ = groups_.shard->write_shared(slot_bytes_,
                                             // Casts to the compute type on the way.
                                             [rows = std::move(rows), slot = slot_] {
                                               const at::NoGradGuard no_grad;
                                               for (const auto& [to, from] : rows) ops::cast_into(to, from);
                                             },
                                             true, {{{}, gather_hint()}});
}

void ParamGroup::start_gather_by_copy() {
  const MemoryScope memory(MemoryCategory::Communication);
  gather_buffer_ = at::empty({groups_.shard->size() * gather_bytes_}, at::kByte);
  const at::Tensor own = gather_buffer_.narrow(0, groups_.shard->rank() * gather_bytes_, gather_bytes_);
  for (const GroupParam& param : params_) {
    const at::Tensor& tile = tile_of(param);
    if (tile.numel() == 0) continue;
    void* target = static_cast<char*>(own.mutable_data_ptr()) + param.gather_offset;
    ops::cast_into(at::from_blob(target, tile.sizes(), param.gathered.options().requires_grad(false)),
                   tile.detach());
  }
  gather_work_ = groups_.shard->all_gather_single(gather_buffer_, own, true, {{{}, gather_hint()}});
}

void ParamGroup::unshard() {
  if (is_gathered_) return;
  const MemoryScope memory(MemoryCategory::GatheredParameters);
  start_unshard();
  if (gather_work_ != nullptr) gather_work_->wait();
  gather_work_ = nullptr;
  if (slot_.defined()) {
    attach_slot();
  } else if (gather_buffer_.defined()) {
    copy_out();
  } else {
    cast_tiles();
  }
  for (const GroupParam& param : params_) {
    if (!param.is_tile) put_in_place(param.gathered, param.whole);
  }
  is_gathered_ = true;
  current_release_ = 0;
}

void ParamGroup::attach_slot() {
  char* const slot = static_cast<char*>(slot_.mutable_data_ptr());
  for (const GroupParam& param : params_) {
    c10::StorageImpl* const storage = param.whole.storage().unsafeGetStorageImpl();
    // Each storage holds the slot's memory by itself.
    auto* const owner = new at::Tensor(slot_);
    storage->set_data_ptr_noswap(at::DataPtr(
        slot + param.slot_offset, owner, [](void* held) { delete static_cast<at::Tensor*>(held); },
        at::kCPU));
    storage->set_nbytes(param.rows * param.row_numel * static_cast<int64_t>(param.gathered.element_size()));
  }
}

void ParamGroup::copy_out() {
  const auto* source = static_cast<const char*>(gather_buffer_.const_data_ptr());
  for (const GroupParam& param : params_) {
    const int64_t row_bytes = param.row_numel * static_cast<int64_t>(param.gathered.element_size());
    set_storage_bytes(param.whole, param.rows * row_bytes);
    // Through the raw pointer: a write that autograd does not see as a new version.
    auto* target = static_cast<char*>(param.whole.storage().mutable_data());
    for (int64_t rank = 0; rank < groups_.shard->size(); ++rank) {
      const Piece piece = piece_of(param.rows, groups_.shard->size(), rank);
      if (piece.size == 0) break;
      std::memcpy(target + piece.begin * row_bytes, source + rank * gather_bytes_ + param.gather_offset,
                  static_cast<size_t>(piece.size * row_bytes));
    }
  }
  gather_buffer_ = at::Tensor();
}

void ParamGroup::cast_tiles() {
  const at::NoGradGuard no_grad;
  for (const GroupParam& param : params_) {
    if (param.is_tile) continue;
    const at::Tensor& tile = tile_of(param);
    set_storage_bytes(param.whole, tile.numel() * static_cast<int64_t>(param.gathered.element_size()));
    if (tile.numel() == 0) continue;
    ops::cast_into(at::from_blob(param.whole.storage().mutable_data(), tile.sizes(),
                                 param.gathered.options().requires_grad(false)),
                   tile.detach());
  }
}

void ParamGroup::free(const GroupParam& param) {
  set_storage_bytes(param.whole, 0);
  put_in_place(param.gathered, param.hollow);
}

void ParamGroup::reshard() {
  if (!needs_gather_) return;
  if (gather_work_ != nullptr) unshard();  // a prefetch that nobody used
  if (!is_gathered_ && current_release_ == 0) return;
  for (const GroupParam& param : params_) {
    if (!param.is_tile) free(param);
  }
  if (slot_.defined()) slots_->give_back(std::move(slot_));
  slot_ = at::Tensor();
  is_gathered_ = false;
  current_release_ = 0;
}

int64_t ParamGroup::release(const std::function<bool(const at::Tensor&)>& is_named) {
  if (!is_gathered_ || slot_.defined()) return 0;
  for (const GroupParam& param : params_) {
    if (param.is_tile || !is_named(param.gathered)) continue;
    free(param);
    is_gathered_ = false;
  }
  if (is_gathered_) return 0;
  current_release_ = ++num_releases_;
  return current_release_;
}

bool ParamGroup::note_gradient(size_t i) {
  if (params_[i].has_gradient) return false;
  params_[i].has_gradient = true;
  return ++num_gradients_ == num_trainable_;
}

std::vector<comm::ScatterPart> ParamGroup::take_gradients(Bucket& bucket, size_t bucket_index) {
  const MemoryScope memory(MemoryCategory::Gradients);
  int64_t numel = 0;
  for (const GroupParam& param : params_) {
    const ShardedParameter& owned = parameters_[param.index];
    if (owned.requires_grad && param.bucket == bucket_index) numel += owned.tile.numel();
  }
  bucket.reduced = at::empty({numel}, at::TensorOptions().dtype(bucket.type));
  std::vector<comm::ScatterPart> parts;
  int64_t offset = 0;
  for (GroupParam& param : params_) {
    const ShardedParameter& owned = parameters_[param.index];
    if (!owned.requires_grad || param.bucket != bucket_index) continue;
    param.reduced = bucket.reduced.narrow(0, offset, owned.tile.numel()).view(owned.tile.sizes());
    offset += owned.tile.numel();
    at::Tensor& grad = param.gathered.mutable_grad();
    std::vector<comm::ElementRange> pieces;
    for (int64_t rank = 0; rank < groups_.shard->size(); ++rank) {
      const Piece piece = piece_of(param.rows, groups_.shard->size(), rank);
      pieces.push_back({piece.begin * param.row_numel, piece.size * param.row_numel});
    }
    parts.push_back(
        {grad.defined() ? grad.detach().contiguous() : at::Tensor(), param.reduced, std::move(pieces)});
    grad.reset();
  }
  return parts;
}

void ParamGroup::keep_gradients(bool is_last_micro_batch) {
  for (GroupParam& param : params_) {
    ShardedParameter& owned = parameters_[param.index];
    if (!owned.requires_grad || !param.gathered.grad().defined()) continue;
    // What is in the tile's type stays for the next micro-batch to be added to.
    if (!is_last_micro_batch && param.gathered.grad().scalar_type() == owned.tile.scalar_type()) continue;
    const at::Tensor arrived = std::move(param.gathered.mutable_grad());
    param.gathered.mutable_grad().reset();
    at::Tensor& grad = owned.tile.mutable_grad();
    if (grad.defined()) {
      grad = grad.to(owned.tile.scalar_type()).add_(arrived);
    } else {
      grad = keeps_narrow_gradients() ? arrived : arrived.to(owned.tile.scalar_type());
    }
  }
}

void ParamGroup::forget_gradients() {
  is_reduced_ = false;
  num_gradients_ = 0;
  for (GroupParam& param : params_) param.has_gradient = false;
}

void ParamGroup::start_reduce(bool is_last_micro_batch) {
  if (num_trainable_ == 0 || !needs_reduce() || is_reduced_) return;
  is_reduced_ = true;
  const at::NoGradGuard no_grad;
  if (is_alone()) return keep_gradients(is_last_micro_batch);
  is_reducing_ = true;
  for (size_t b = 0; b < buckets_.size(); ++b) {
    Bucket& bucket = buckets_[b];
    const std::string hint = "gradients of " + name_;
    reduce_works_.push_back(
        groups_.shard->reduce_scatter_parts(take_gradients(bucket, b), bucket.type, true, {{{}, hint}}));
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
  for (GroupParam& param : params_) {
    ShardedParameter& owned = parameters_[param.index];
    if (!owned.requires_grad) continue;
    const at::Tensor reduced = param.reduced.to(owned.tile.scalar_type());
    param.reduced = at::Tensor();
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

void ParamGroup::abandon_reduce() {
  for (const auto& work : reduce_works_) work->wait();
  reduce_works_.clear();
  for (GroupParam& param : params_) param.reduced = at::Tensor();
  for (Bucket& bucket : buckets_) bucket.reduced = at::Tensor();
  is_reducing_ = false;
  forget_gradients();
}

void ParamGroup::drop_gradients() {
  for (GroupParam& param : params_) param.gathered.mutable_grad().reset();
}

}  // namespace tessera::parallel::detail
