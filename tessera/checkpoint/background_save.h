// Checkpoints that are written while the steps go on.
#pragma once

#include <exception>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "tessera/checkpoint/save_checkpoint.h"

namespace tessera::checkpoint {

// Copies, in host memory, of the values that this rank writes into a checkpoint. The memory is kept for the
// next snapshot. All calls get the same tensors in the same order.
class Snapshot {
 public:
  // Returns the bytes that take() would allocate beside the memory that is kept from the last snapshot.
  int64_t bytes_to_come(const std::vector<StateTensor>& tensors) const;
  // Allocates that memory and touches its pages, so that take() only has to copy.
  void reserve(const std::vector<StateTensor>& tensors);
  // Copies the values as they are now. Returns the same tensors with the copies as their values, which are
  // valid until the next take(). They can be saved, but not set.
  std::vector<StateTensor> take(const std::vector<StateTensor>& tensors);

 private:
  std::vector<at::Tensor> copies_;  // one for each tensor; undefined if another rank writes its box
};

// Saves the checkpoints of one run on a thread, one at a time. They use a communicator of their own, so their
// collectives never mix with those of the steps, and a save that takes long is no error.
class BackgroundSave {
 public:
  // Makes the communicator of the saves. Collective over `world`, which must outlive this object.
  explicit BackgroundSave(comm::Communicator& world);
  // Waits for the save that is under way, if there is one.
  ~BackgroundSave();
  BackgroundSave(const BackgroundSave&) = delete;
  BackgroundSave& operator=(const BackgroundSave&) = delete;

  // Tells whether every machine has the memory for a snapshot of its ranks. The answer is the same on all
  // ranks. Collective.
  bool has_memory_for(const std::vector<StateTensor>& tensors);
  // Allocates the memory for snapshots on a thread. Called early, it makes the first save as quick as the
  // others. Not collective.
  void reserve(const std::vector<StateTensor>& tensors);
  // Copies the values, returns, and runs save_checkpoint() of the copies on a thread, followed by `after`,
  // which must not throw. No save may be under way. Collective.
  void start(const std::vector<StateTensor>& tensors, CheckpointNotes notes, const std::string& output_dir,
             std::function<void()> after);
  // Runs save_checkpoint() and then `after` before it returns, without copies. No save may be under way.
  // Throws what save_checkpoint() throws. Collective.
  void save(const std::vector<StateTensor>& tensors, const CheckpointNotes& notes,
            const std::string& output_dir, const std::function<void()>& after);

  // Tells whether a save was started and not waited for yet.
  bool is_under_way() const { return writing_.valid(); }
  // Tells whether the save that is under way has ended on all ranks, with or without success; wait() then
  // returns at once. The answer is the same on all ranks. Collective.
  bool has_ended();
  // Waits for the save that is under way, which is then under way no more. Throws on every rank what
  // save_checkpoint() threw there. All ranks call it at the same step.
  void wait() { writing_.get(); }

 private:
  comm::Communicator& world_;
  std::shared_ptr<comm::Communicator> group_;
  Snapshot snapshot_;
  std::future<void> reserving_, writing_;
};

}  // namespace tessera::checkpoint
