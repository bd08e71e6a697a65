// A reduce-scatter whose messages hold codes in place of gradients.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tessera/comm/communicator.h"
#include "tessera/ops/row_codes.h"
#include "tessera/parallel/parameter_layouts.h"

namespace tessera::parallel::detail {

// A part of a reduce-scatter, whose pieces are whole rows, and how these are coded.
struct CodedPart {
  comm::ScatterPart part;
  ops::RowCodes codes;
};

// [Note: sums of codes]
// The method is that of Wang et al., "ZeRO++" (arXiv 2306.10209), section 3.3. Every rank codes its gradients
// and sends each rank the codes of its piece; the rank decodes what arrives and adds it up in float32, in the
// order of the ranks. A gradient is so rounded once, while a ring of partial sums would round it at every
// step.
//
// In two stages, the ranks of a machine first exchange the pieces of all ranks that have their place on any
// machine, and add them up; the sums are coded again and exchanged between the machines. A gradient is
// rounded twice, and what crosses the link between machines is divided by the number of ranks of a machine.
//
// A sum differs from the exact one by at most half a scale for each message that has gone into it. It is a
// sum over all ranks: nothing is divided.

// Starts the reduction of `parts` over groups.shard, in two stages if groups.machine has several ranks but
// not all. wait() of the returned work writes the sums; call it on the thread that submits operations. On
// return the inputs are no longer needed; the outputs must live on. Collective.
std::shared_ptr<comm::Work> start_coded_reduce(std::vector<CodedPart> parts, const ShardGroups& groups,
                                               const std::string& hint);

}  // namespace tessera::parallel::detail
