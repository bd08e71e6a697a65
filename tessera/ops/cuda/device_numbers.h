// Numbers of a batch on a device, for kernels that read them there.
#pragma once

#include <array>
#include <cstddef>
#include <list>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "tessera/device/device_event.h"
#include "tessera/ops/support.h"

namespace tessera::ops::cuda {

// Returns a copy of the numbers on the device for its current stream, without waiting for it. The numbers are
// the same in every layer of a model, so the last few copies of a thread stay and are returned again.
template <class T>
at::Tensor device_numbers(std::vector<T> numbers, at::Device device) {
  struct Copy {
    std::vector<T> numbers;
    std::optional<c10::Stream> stream;
    at::Tensor there;
  };
  struct Copies {
    std::array<Copy, 4> all;
    size_t oldest = 0;
  };
  // The copies are never freed: LibTorch's threads may end when the device's part of LibTorch is gone.
  static std::mutex mutex;
  static auto& of_threads = *new std::list<Copies>;
  thread_local Copies& mine = [&]() -> Copies& {
    const std::lock_guard<std::mutex> lock(mutex);
    return of_threads.emplace_back();
  }();
  const auto stream = has_streams(device) ? std::optional(current_stream(device)) : std::nullopt;
  for (const Copy& copy : mine.all) {
    const bool is_here = copy.there.defined() && copy.there.device() == device && copy.stream == stream;
    if (is_here && copy.numbers == numbers) return copy.there;
  }
  Copy& copy = mine.all[std::exchange(mine.oldest, (mine.oldest + 1) % mine.all.size())];
  copy.there = copied_to(device, numbers);
  copy.numbers = std::move(numbers);
  copy.stream = stream;
  return copy.there;
}

}  // namespace tessera::ops::cuda
