#include "tessera/device/pinned_memory.h"

#include <algorithm>
#include <bit>

#include <ATen/ATen.h>

#include "tessera/core/error.h"
#include "tessera/core/process_stats.h"
#include "tessera/core/round_up.h"
#include "tessera/core/strings.h"
#include "tessera/device/device.h"
#include "tessera/device/device_event.h"

namespace tessera {

at::Tensor empty_pinned(at::IntArrayRef sizes, at::ScalarType type, c10::Device device) {
  return at::empty(sizes, on_host(type).pinned_memory(has_streams(device)));
}

at::Tensor PinnedArena::empty(at::IntArrayRef sizes, at::ScalarType type) {
  const auto element = static_cast<int64_t>(c10::elementSize(type));
  const int64_t wanted = round_up(c10::multiply_integers(sizes) * element, kAlignment);
  if (!piece_.defined() || used_ + wanted > piece_.numel()) {
    // The new piece is the largest power of two that the rest to be asked for fills, or the least that holds
    // this tensor.
    const auto rest = std::bit_floor(static_cast<uint64_t>(std::max(left_, kAlignment)));
    const auto least = std::bit_ceil(static_cast<uint64_t>(std::max(wanted, kAlignment)));
    piece_ = empty_pinned({static_cast<int64_t>(std::max(rest, least))}, at::kByte, device_);
    used_ = 0;
  }
  const at::Tensor taken = at::empty({0}, on_host(type)).set_(piece_.storage(), used_ / element, sizes);
  used_ += wanted;
  left_ -= wanted;
  return taken;
}

void require_host_memory(int64_t num_bytes, const std::string& code, const std::string& what,
                         const std::string& hint) {
  const int64_t free = available_memory_bytes();
  if (num_bytes <= free) return;
  throw Error(ErrorKind::Memory, code, what + " do not fit the host's memory")
      .got(format_bytes(free) + " free")
      .need(format_bytes(num_bytes) + " for this rank")
      .hint(hint);
}

}  // namespace tessera
