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

// Values of tensors as they are now, in host memory: those that this rank writes into a checkpoint. The
// memory is kept for the next snapshot.
class Snapshot {
 public:
  // Bytes that take() needs beside what is kept from the last one.
  int64_t bytes_to_come(const std::vector<StateTensor>& tensors) const;
  // Takes that memory, and touches it, so that take() has only to copy.
  void reserve(const std::vector<StateTensor>& tensors);
  // The same tensors, whose values are the copies: valid until the next take(). They can be saved, not set.
  std::vector<StateTensor> take(const std::vector<StateTensor>& tensors);

 private:
  std::vector<at::Tensor> copies_;  // of each tensor; undefined where another rank writes
};

// Saves of one run, one at a time. They use a group of their own, so they meet no collective of the steps,
// and a save that takes long is no error.
class BackgroundSave {
 public:
  // Collective over `world`, which outlives this.
  explicit BackgroundSave(comm::Communicator& world);
  // Waits for what is under way.
  ~BackgroundSave();
  BackgroundSave(const BackgroundSave&) = delete;
  BackgroundSave& operator=(const BackgroundSave&) = delete;

  // Whether every machine has the memory for a snapshot of its ranks. The same on all ranks. Collective.
  bool has_memory_for(const std::vector<StateTensor>& tensors);
  // Takes the memory for snapshots, on a thread: for an early call, so that the first save is as quick as the
  // others. Not collective.
  void reserve(const std::vector<StateTensor>& tensors);
  // save_checkpoint() of copies of the values, on a thread, and then `after` there, which must not throw.
  // Returns when the copies are made. Requires none under way. Collective.
  void start(const std::vector<StateTensor>& tensors, CheckpointNotes notes, const std::string& output_dir,
             std::function<void()> after);
  // The same at once, without copies. Throws what save_checkpoint() throws. Collective.
  void save(const std::vector<StateTensor>& tensors, const CheckpointNotes& notes,
            const std::string& output_dir, const std::function<void()>& after);

  bool is_under_way() const { return writing_.valid(); }
  // Whether it has ended on all ranks, well or not: wait() then returns at once. Collective.
  bool has_ended();
  // Until it has ended. Throws on every rank alike what save_checkpoint() threw; it is then under way no
  // more.
  void wait() { writing_.get(); }

 private:
  comm::Communicator& world_;
  std::shared_ptr<comm::Communicator> group_;
  Snapshot snapshot_;
  std::future<void> reserving_, writing_;
};

}  // namespace tessera::checkpoint
