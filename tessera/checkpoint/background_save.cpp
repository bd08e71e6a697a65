#include "tessera/checkpoint/background_save.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "tessera/core/error.h"
#include "tessera/core/host_name.h"
#include "tessera/core/process_stats.h"
#include "tessera/device/device.h"
#include "tessera/device/torch_dtype.h"

namespace tessera::checkpoint {
namespace {

// [Note: a save beside the steps] Two threads of a rank work at once: the main thread with its steps, and the
// thread of std::async() that writes. They share no memory that either writes:
//
// - start() copies the values on the main thread and returns when all copies are made, so they belong to one
//   step. The thread reads the copies alone; the next step may change the tiles at once.
// - The copies' memory is used again by the next take(). No thread reads it then: start() asserts that no
//   save is under way, and only wait(), which joins the thread, ends that.
// - reserve() also writes copies_ on a thread. Both functions that look at copies_ on the main thread join it
//   first: has_memory_for() and start().
// - The thread's collectives run on group_, those of the steps on world_ and others. So their order between
//   the two threads does not matter, and on group_ all ranks have the same order, as there is one save at a
//   time.
//
// All ranks must join the thread at the same step of their main threads: an error of the save is thrown
// there, on all ranks (save_checkpoint() agrees on it), and a rank that met it one step earlier would leave
// the others alone in a collective. So the ranks agree through has_ended(), which is false until the last
// rank's thread has ended, or all of them call wait() and block.

// Copies values into `copy`, a dense tensor on the host of the same type and size. The steps wait for this
// copy, so it uses memcpy() if it can: at::Tensor::copy_() also reads the memory that it overwrites.
void copy_values(const at::Tensor& copy, const at::Tensor& values) {
  if (values.device().type() != kHost || !values.is_contiguous()) {
    copy.copy_(values);
    return;
  }
  constexpr int64_t kGrainBytes = int64_t{1} << 20;
  auto* const to = static_cast<char*>(copy.mutable_data_ptr());
  const auto* const from = static_cast<const char*>(values.const_data_ptr());
  at::parallel_for(0, static_cast<int64_t>(values.nbytes()), kGrainBytes, [&](int64_t begin, int64_t end) {
    std::memcpy(to + begin, from + begin, static_cast<size_t>(end - begin));
  });
}

}  // namespace

int64_t Snapshot::bytes_to_come(const std::vector<StateTensor>& tensors) const {
  int64_t bytes = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const bool is_kept = i < copies_.size() && copies_[i].defined();
    if (is_kept || !is_writer(tensors[i], i)) continue;
    bytes += tensors[i].box().numel() * dtype_size(tensors[i].layout.dtype());
  }
  return bytes;
}

void Snapshot::reserve(const std::vector<StateTensor>& tensors) {
  // Writing one byte of each page makes the system provide the page now, on this thread.
  constexpr int64_t kPageBytes = 4096;
  copies_.resize(tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (!is_writer(tensors[i], i)) continue;
    copies_[i] = at::empty(tensors[i].box().size, on_host(to_scalar_type(tensors[i].layout.dtype())));
    auto* const bytes = static_cast<char*>(copies_[i].mutable_data_ptr());
    const auto size = static_cast<int64_t>(copies_[i].nbytes());
    for (int64_t at = 0; at < size; at += kPageBytes) bytes[at] = 0;
  }
}

std::vector<StateTensor> Snapshot::take(const std::vector<StateTensor>& tensors) {
  const at::NoGradGuard no_grad;
  copies_.resize(tensors.size());
  std::vector<StateTensor> taken;
  for (size_t i = 0; i < tensors.size(); ++i) {
    StateTensor& own = taken.emplace_back(tensors[i]);
    own.set = nullptr;
    own.get = nullptr;  // stays so for boxes that other ranks write
    if (!is_writer(tensors[i], i)) continue;
    const at::Tensor values = tensors[i].get();
    at::Tensor& copy = copies_[i];
    if (!copy.defined() || copy.sizes() != values.sizes() || copy.scalar_type() != values.scalar_type()) {
      copy = at::empty(values.sizes(), on_host(values.scalar_type()));
    }
    copy_values(copy, values);
    own.get = [copy] { return copy; };
  }
  return taken;
}

BackgroundSave::BackgroundSave(comm::Communicator& world)
    : world_(world), group_(world.split(0, world.rank(), "checkpoint")) {}

BackgroundSave::~BackgroundSave() {
  // The threads use this object, and what `after` captured. Their errors are not thrown any more.
  for (const auto* work : {&reserving_, &writing_}) {
    if (work->valid()) work->wait();
  }
}

bool BackgroundSave::has_memory_for(const std::vector<StateTensor>& tensors) {
  if (reserving_.valid()) reserving_.get();
  // Every rank tells the bytes that it needs, those that its machine can spare, and the machine's name. A
  // twentieth of the memory that its processes may use stays free.
  const int64_t spare = available_memory_bytes() - usable_memory_bytes() / 20;
  const auto told = world_.all_gather_string(std::to_string(snapshot_.bytes_to_come(tensors)) + " " +
                                             std::to_string(spare) + " " + host_name());
  std::map<std::string, std::pair<int64_t, int64_t>> machines;  // by name: bytes needed, bytes to spare
  for (const std::string& text : told) {
    size_t end = 0;
    const int64_t needed = std::stoll(text, &end);
    size_t more = 0;
    const int64_t left = std::stoll(text.substr(end), &more);
    // The needs of a machine's ranks add up; of what they see as free, the least counts.
    auto& machine = machines.try_emplace(text.substr(end + more), 0, left).first->second;
    machine.first += needed;
    machine.second = std::min(machine.second, left);
  }
  // A machine whose copies all exist already needs nothing, however little is free.
  return std::ranges::all_of(machines, [](const auto& machine) {
    return machine.second.first == 0 || machine.second.first <= machine.second.second;
  });
}

void BackgroundSave::reserve(const std::vector<StateTensor>& tensors) {
  reserving_ = std::async(std::launch::async, [this, tensors] { snapshot_.reserve(tensors); });
}

void BackgroundSave::start(const std::vector<StateTensor>& tensors, CheckpointNotes notes,
                           const std::string& output_dir, std::function<void()> after) {
  // See [Note: a save beside the steps]. The arguments are evaluated on this thread: take() copies here, and
  // the thread owns the notes, its tensors and a share of the communicator.
  TESSERA_ASSERT(!is_under_way(), "two saves at a time");
  if (reserving_.valid()) reserving_.get();
  writing_ = std::async(std::launch::async, [group = group_, taken = snapshot_.take(tensors),
                                             notes = std::move(notes), output_dir, after = std::move(after)] {
    save_checkpoint(taken, notes, output_dir, *group);
    after();
  });
}

void BackgroundSave::save(const std::vector<StateTensor>& tensors, const CheckpointNotes& notes,
                          const std::string& output_dir, const std::function<void()>& after) {
  TESSERA_ASSERT(!is_under_way(), "two saves at a time");
  save_checkpoint(tensors, notes, output_dir, *group_);
  after();
}

bool BackgroundSave::has_ended() {
  // This collective runs on world_, in the main thread's order. See [Note: a save beside the steps].
  const bool is_here = writing_.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
  const auto all = world_.all_gather_string(is_here ? "" : "writing");
  return std::ranges::all_of(all, [](const std::string& rank) { return rank.empty(); });
}

}  // namespace tessera::checkpoint
