#include "tessera/comm/nccl/gather_parts.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <utility>

#include <ATen/ATen.h>

#include "tessera/core/round_up.h"

namespace tessera::comm::detail {
namespace {

int64_t element_size(const GatherPart& part) { return static_cast<int64_t>(part.input.element_size()); }

int64_t longest_bytes(const GatherPart& part) {
  return *std::max_element(part.counts.begin(), part.counts.end()) * element_size(part);
}

bool may_be_padded(const GatherPart& part) {
  constexpr int64_t kMostPiece = int64_t{4} << 20, kMostRoom = int64_t{64} << 10;
  const int64_t longest = longest_bytes(part), whole = static_cast<int64_t>(part.output.nbytes());
  const int64_t room = longest * std::ssize(part.counts) - whole;
  return room > 0 && longest <= kMostPiece && room <= std::max(kMostRoom, whole / 8);
}

// Gathers several tensors, with their pieces padded, as one: a row for each rank holds the padded pieces of
// all tensors behind each other. Making the object copies this rank's pieces into its row.
class PaddedGather {
 public:
  PaddedGather(const NcclGroup& group, std::vector<const GatherPart*> parts)
      : rank_(group.rank()), size_(group.size()), parts_(std::move(parts)) {
    for (const GatherPart* part : parts_) {
      offsets_.push_back(row_bytes_);
      row_bytes_ += round_up(longest_bytes(*part), int64_t{16});  // for copies in wide words
    }
    rows_ = at::empty({size_, row_bytes_}, parts_.front()->output.options().dtype(at::kByte));
    std::vector<at::Tensor> to, from;
    for (size_t i = 0; i < parts_.size(); ++i) {
      if (parts_[i]->input.numel() == 0) continue;
      to.push_back(place(i, rank_));
      from.push_back(parts_[i]->input.view(-1));
    }
    copy(to, from);
  }

  // Puts the gather of all rows on the group's stream.
  void submit(NcclGroup& group) const {
    group.all_gather(rows_.mutable_data_ptr(), rows_.select(0, rank_).const_data_ptr(),
                     std::vector<int64_t>(static_cast<size_t>(size_), row_bytes_));
  }
  // Copies the pieces of all ranks into the tensors. Call it when the gather has been put on the stream.
  void copy_out() const {
    std::vector<at::Tensor> to, from;
    for (size_t i = 0; i < parts_.size(); ++i) {
      int64_t begin = 0;
      for (int64_t rank = 0; rank < size_; ++rank) {
        const int64_t count = parts_[i]->counts[static_cast<size_t>(rank)];
        const at::Tensor target = parts_[i]->output.view(-1).narrow(0, begin, count);
        begin += count;
        if (count == 0 || target.const_data_ptr() == parts_[i]->input.const_data_ptr()) continue;
        to.push_back(target);
        from.push_back(place(i, rank));
      }
    }
    copy(to, from);
  }

 private:
  // The place of tensor i's piece in the row of rank `rank`, as elements of its type.
  at::Tensor place(size_t i, int64_t rank) const {
    const GatherPart& part = *parts_[i];
    return rows_.select(0, rank)
        .narrow(0, offsets_[i], part.counts[static_cast<size_t>(rank)] * element_size(part))
        .view(part.output.scalar_type());
  }
  // LibTorch copies all tensors of one type by one kernel.
  static void copy(const std::vector<at::Tensor>& to, const std::vector<at::Tensor>& from) {
    if (!to.empty()) at::_foreach_copy_(to, from);
  }

  const int64_t rank_, size_;
  const std::vector<const GatherPart*> parts_;
  std::vector<int64_t> offsets_;  // of each tensor in a row, in bytes
  int64_t row_bytes_ = 0;
  at::Tensor rows_;
};

}  // namespace

void gather_parts(NcclGroup& group, const std::vector<GatherPart>& parts) {
  std::vector<const GatherPart*> padded, direct;
  for (const GatherPart& part : parts) (may_be_padded(part) ? padded : direct).push_back(&part);
  // So few broadcasts cost less than a gather and two copies: see [Note: padded gathers].
  if (std::ssize(padded) * group.size() <= 3) {
    direct.insert(direct.end(), padded.begin(), padded.end());
    padded.clear();
  }
  std::optional<PaddedGather> rows;
  if (!padded.empty()) rows.emplace(group, std::move(padded));
  // The gathers of one group of NCCL's run as one operation, which end() puts on the stream. The copies into
  // the rows were put there before it; the copies out of them come behind it.
  NcclLibrary::GroupScope together(group.library());
  for (const GatherPart* part : direct) {
    std::vector<int64_t> num_bytes = part->counts;
    for (int64_t& count : num_bytes) count *= element_size(*part);
    group.all_gather(part->output.mutable_data_ptr(), part->input.const_data_ptr(), num_bytes);
  }
  if (rows) rows->submit(group);
  together.end();
  if (rows) rows->copy_out();
}

}  // namespace tessera::comm::detail
