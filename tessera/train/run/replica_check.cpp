#include "tessera/train/run/replica_check.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include <ATen/ATen.h>

#include "tessera/core/content_hash.h"
#include "tessera/core/error.h"
#include "tessera/device/device.h"
#include "tessera/device/host_memory.h"

namespace tessera::train {
namespace {

// Hashes of one tensor on one rank: one of the box that the rank holds, one of its values.
struct Copy {
  uint64_t box, values;
};

Copy copy_of(const checkpoint::StateTensor& tensor) {
  const parallel::Box box = tensor.box();
  if (box.numel() == 0) return {0, 0};
  ContentHash place, content;
  place.add(std::span<const int64_t>(box.offset));
  place.add(std::span<const int64_t>(box.size));
  const at::Tensor values = tensor.get().to(kHost).contiguous().reshape(-1).view(at::kByte);
  content.add(host_span<const uint8_t>(values));
  return {place.value(), content.value()};
}

std::string ranks_text(const std::vector<int64_t>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < ranks.size(); ++i) text += (i > 0 ? ", " : "") + std::to_string(ranks[i]);
  return text;
}

}  // namespace

void ReplicaCheck::after_step(const TrainState& state) {
  const int64_t every = training_.recipe().replica_check_steps;
  if (every == 0 || world_.size() == 1 || state.step % every != 0) return;
  const auto tensors = training_.tensors();
  std::vector<Copy> own;
  own.reserve(tensors.size());
  for (const auto& tensor : tensors) own.push_back(copy_of(tensor));
  const auto all = world_.all_gather_string(
      std::string(reinterpret_cast<const char*>(own.data()), own.size() * sizeof(Copy)));
  for (size_t i = 0; i < tensors.size(); ++i) {
    std::map<uint64_t, std::map<uint64_t, std::vector<int64_t>>> ranks;  // by box and values
    for (size_t rank = 0; rank < all.size(); ++rank) {
      Copy copy{};
      std::memcpy(&copy, all[rank].data() + i * sizeof copy, sizeof copy);
      ranks[copy.box][copy.values].push_back(static_cast<int64_t>(rank));
    }
    for (const auto& [box, copies] : ranks) {
      if (copies.size() < 2) continue;
      const auto fewest =
          std::ranges::min_element(copies, {}, [](const auto& of_values) { return of_values.second.size(); });
      const auto most =
          std::ranges::max_element(copies, {}, [](const auto& of_values) { return of_values.second.size(); });
      const bool is_clear = fewest->second.size() < most->second.size();
      throw Error(
          ErrorKind::Numerics, "REPLICAS",
          "the copies of '" + tensors[i].name + "' differ after step " + std::to_string(state.step) + ": " +
              (is_clear ? ranks_text(fewest->second) + " has other values than " + ranks_text(most->second)
                        : ranks_text(copies.begin()->second) + " against " +
                              ranks_text(std::next(copies.begin())->second)))
          .hint(
              "its memory, its processor or a link has failed; resume from the newest checkpoint without "
              "that machine");
    }
  }
}

}  // namespace tessera::train
