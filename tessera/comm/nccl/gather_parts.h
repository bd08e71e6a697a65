// A gather of several tensors at once by NCCL.
#pragma once

#include <vector>

#include "tessera/comm/gather_part.h"
#include "tessera/comm/nccl/nccl_group.h"

namespace tessera::comm::detail {

// [Note: padded gathers]
// Pieces of one length go by ncclAllGather, in place. It takes no pieces of several lengths: they need a
// broadcast for each rank and tensor, and broadcasts run one after another, each at the cost of a way round
// all ranks, some ten microseconds. Instead, all such tensors of a call can go as one gather of pieces that
// are padded to the longest, at the cost of the padding on the wire and of two copies on the device. This is
// done if
// - it saves operations: one gather and two copies in place of more than three broadcasts;
// - a tensor's longest piece has at most 4 MiB: copying it twice takes less time than a broadcast of it
//   waits;
// - the padding is at most an eighth of a tensor, or 64 KiB, which no link notices.
// A larger tensor is bound by the link, which broadcasts use as well as a gather does. The figures are
// estimates, for links of 50 GB/s and memory of 3 TB/s. All ranks choose alike, as they know all counts.
//
// Gathers `parts`, in the body of NcclGroup::run(). The buffer of padded pieces is allocated on the group's
// stream, so its memory is reused only behind the gather.
void gather_parts(NcclGroup& group, const std::vector<GatherPart>& parts);

}  // namespace tessera::comm::detail
