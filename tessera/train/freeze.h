// `unfrozen_parameters`: training a part of the weights.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tessera/checkpoint/state_dict_adapter.h"
#include "tessera/models/common/causal_lm.h"
#include "tessera/parallel/fully_shard.h"

namespace tessera::train {

// Of parameters of which some rows (along the first dim) are trained and others not: those that are, as
// [begin, end), in order.
using TrainedRows = std::map<std::string, std::vector<std::pair<int64_t, int64_t>>>;

// Trains those parameters alone whose name begins with what one of the regular expressions matches: their
// name in the model, or that of the tensors of its files that they are made of (`saved`). As in Axolotl, a
// dot means a dot, unless a + follows, and behind a pattern "[7]", "[7:]", "[:9]" and "[7:9]" are rows. Warns
// of patterns that match nothing. Before parallelize(). Throws Error(Config, "UNFROZEN") for a pattern that
// does not parse, one that matches some of a parameter's tensors and not others, rows that a parameter does
// not have, or that its files hold otherwise than it, and patterns that match nothing at all.
TrainedRows freeze_all_but(models::CausalLM& model, const checkpoint::StateDictAdapter& saved,
                           const std::vector<std::string>& patterns);

// Zeroes the gradients of all other rows of these parameters, in this rank's tiles.
void clear_frozen_rows(const TrainedRows& trained, const parallel::ShardedModel& model);

}  // namespace tessera::train
