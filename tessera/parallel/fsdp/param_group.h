// The parameters of one unit: gathered together, reduced together.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/function.h>

#include "tessera/parallel/fsdp/gather_slots.h"
#include "tessera/parallel/fully_shard.h"

namespace tessera::parallel::detail {

// A parameter of a unit. `tile` lives in ShardedModel's list.
struct GroupParam {
  // The module's own parameter. Full shape and compute type; `whole` while gathered, `hollow` otherwise,
  // unless it is the tile.
  at::Tensor gathered;
  // Autograd may hold views of it: its storage is freed and refilled in place, under unchanged versions.
  at::Tensor whole;
  at::Tensor hollow;
  int64_t index = 0;  // in ShardedModel::parameters()
  int64_t rows = 0, row_numel = 0, padded_rows = 0;
  // Position of the whole parameter in the unit's slot, and of its padded rows in a rank's piece of the
  // gather buffer (bytes).
  int64_t slot_offset = 0, gather_offset = 0;
  size_t bucket = 0;
  at::Tensor reduced;         // while in flight: this rank's rows of the gradient, in the bucket's type
  bool has_gradient = false;  // in the backward that runs now
  bool is_tile = false;       // the tile is `gathered` itself: nothing to gather
  at::ScalarType gradient_type = at::kFloat;           // in which ops add to gathered.grad()
  std::shared_ptr<torch::autograd::Node> accumulator;  // of gradients; held for its hook
};

// [Note: life of a unit]
// sharded --start_unshard()--> gathering --unshard()--> gathered --reshard()--> sharded. In the backward
// every gradient that arrives is counted; when the last one is there, or at the end of the backward,
// start_reduce() sends them off, in one operation for each type; finish_reduce() adds the rank's own rows to
// tile.grad(). The root may be released in between: gathered but for what its backward does not read. Where
// one rank holds the whole parameter in its stored type, the tile is the parameter itself, and gathering does
// nothing.
//
// [Note: three ways to gather]
// Ranks of one machine: every rank casts its rows into a slot of memory that they share, and the parameter's
// storage is the slot. Ranks of several machines: the rows are packed, gathered and copied out. One rank in
// another compute type: the tile is cast into the storage.
class ParamGroup {
 public:
  ParamGroup(std::string name, ShardGroups groups, const ShardOptions& options,
             std::vector<ShardedParameter>& parameters, std::shared_ptr<GatherSlots> slots);

  // Takes a parameter of the module into the group; `index` is its place in `parameters`.
  void add(const at::Tensor& parameter, int64_t index);
  // Call once, after the last add(): lays out the buffers and makes the parameters hollow.
  void finish_setup();
  // From now on ops add gradients to the parameters directly.
  void accumulate_directly();

  const std::string& name() const { return name_; }
  bool is_gathered() const { return is_gathered_; }
  std::vector<GroupParam>& params() { return params_; }
  // False when tiles are the parameters themselves.
  bool needs_gather() const { return needs_gather_; }
  bool needs_reduce() const {
    return groups_.shard->size() > 1 || groups_.replicate->size() > 1 || needs_gather_;
  }

  void start_unshard();
  void unshard();
  void reshard();
  // Frees those of the gathered parameters that are named, where they have memory of their own (not in a
  // slot); the others stay until reshard(). Returns the number of the release, 0 where nothing was freed. For
  // a backward that reads only the others, is_released(number) is as good as gathered.
  int64_t release(const std::function<bool(const at::Tensor& parameter)>& is_named);
  bool is_released(int64_t number) const { return number > 0 && number == current_release_; }

  // A gradient of params()[i] has been accumulated; true when it was the last one that is missing.
  bool note_gradient(size_t i);
  // The backward is over: none has arrived for the next one.
  void forget_gradients();
  // Sends what gradients there are (zeros for the others); once in a backward.
  void start_reduce(bool is_last_micro_batch);
  void finish_reduce();

  // After a backward that did not finish: waits for what is in flight and adds it to no tile.
  void abandon_reduce();
  // Drops the gradients that have not reached the tiles.
  void drop_gradients();

 private:
  struct Bucket {
    at::ScalarType type = at::kFloat;
    at::Tensor reduced;  // while in flight: this rank's rows of all parameters
  };
  std::string gather_hint() const { return "parameters of " + name_; }
  const at::Tensor& tile_of(const GroupParam& param) const;
  void start_gather_in_slot();
  void start_gather_by_copy();
  void attach_slot();
  void copy_out();
  void cast_tiles();
  void free(const GroupParam& param);
  bool is_alone() const { return groups_.shard->size() * groups_.replicate->size() == 1; }
  bool keeps_narrow_gradients() const {
    return is_alone() && options_.mixed_precision.keeps_narrow_gradients;
  }
  // Adds the gradients of a process alone to the tiles', after the step's last backward at the latest.
  void keep_gradients(bool is_last_micro_batch);
  // The bucket's gradients, which are taken from the parameters.
  std::vector<comm::ScatterPart> take_gradients(Bucket& bucket, size_t bucket_index);

  std::string name_;
  ShardGroups groups_;
  const ShardOptions options_;
  std::vector<ShardedParameter>& parameters_;
  std::vector<GroupParam> params_;
  std::vector<Bucket> buckets_;
  int64_t gather_bytes_ = 0;  // of one rank's piece
  int64_t slot_bytes_ = 0;
  int64_t num_trainable_ = 0, num_gradients_ = 0;
  bool needs_gather_ = false, is_gathered_ = false, is_reducing_ = false, is_reduced_ = false;
  int64_t current_release_ = 0, num_releases_ = 0;  // 0: not released
  std::shared_ptr<GatherSlots> slots_;
  at::Tensor slot_, gather_buffer_;
  std::shared_ptr<comm::Work> gather_work_;
  std::vector<std::shared_ptr<comm::Work>> reduce_works_;
};

}  // namespace tessera::parallel::detail
