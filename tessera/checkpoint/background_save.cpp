#include "tessera/checkpoint/background_save.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "tessera/core/device.h"
#include "tessera/core/error.h"
#include "tessera/core/host_name.h"
#include "tessera/core/process_stats.h"
#include "tessera/core/torch_dtype.h"

namespace tessera::checkpoint {
namespace {

// The steps wait for it. memcpy() does not read what it overwrites, as at::Tensor::copy_() does.
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
    own.get = nullptr;
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
  for (const auto* work : {&reserving_, &writing_}) {
    if (work->valid()) work->wait();
  }
}

bool BackgroundSave::has_memory_for(const std::vector<StateTensor>& tensors) {
  if (reserving_.valid()) reserving_.get();
  // Every rank's machine, need, and what is free there; a twentieth of what it may have stays so.
  const int64_t spare = available_memory_bytes() - usable_memory_bytes() / 20;
  const auto told = world_.all_gather_string(std::to_string(snapshot_.bytes_to_come(tensors)) + " " +
                                             std::to_string(spare) + " " + host_name());
  std::map<std::string, std::pair<int64_t, int64_t>> machines;  // needed, spare
  for (const std::string& text : told) {
    size_t end = 0;
    const int64_t needed = std::stoll(text, &end);
    size_t more = 0;
    const int64_t left = std::stoll(text.substr(end), &more);
    auto& machine = machines.try_emplace(text.substr(end + more), 0, left).first->second;
    machine.first += needed;
    machine.second = std::min(machine.second, left);
  }
  return std::ranges::all_of(machines, [](const auto& machine) {
    return machine.second.first == 0 || machine.second.first <= machine.second.second;
  });
}

void BackgroundSave::reserve(const std::vector<StateTensor>& tensors) {
  reserving_ = std::async(std::launch::async, [this, tensors] { snapshot_.reserve(tensors); });
}

void BackgroundSave::start(const std::vector<StateTensor>& tensors, CheckpointNotes notes,
                           const std::string& output_dir, std::function<void()> after) {
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
  const bool is_here = writing_.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
  const auto all = world_.all_gather_string(is_here ? "" : "writing");
  return std::ranges::all_of(all, [](const std::string& rank) { return rank.empty(); });
}

}  // namespace tessera::checkpoint
