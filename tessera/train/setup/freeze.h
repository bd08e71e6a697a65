// Trains a part of the weights alone (`unfrozen_parameters`).
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

// For each parameter of which some rows (along the first dim) are trained and others not: the trained rows as
// [begin, end), in order.
using TrainedRows = std::map<std::string, std::vector<std::pair<int64_t, int64_t>>>;

// Trains only the parameters whose name begins with what one of the regular expressions matches, and freezes
// all others. A parameter is known by its name in the model and by those of the tensors in its files that it
// is made of (`saved`). As in Axolotl, a dot means a dot, unless a + follows, and "[7]", "[7:]", "[:9]" and
// "[7:9]" behind a pattern mean rows. Returns the rows of parameters that are trained in part. Warns of
// patterns that match nothing. Call it before parallelize(). Throws Error(Config, "UNFROZEN") for a pattern
// that does not parse, one that matches some of a parameter's tensors and not others, rows that a parameter
// does not have or that its files hold in another form, a parameter of which one pattern means all and
// another some rows, and patterns that match nothing at all.
TrainedRows freeze_all_but(models::CausalLM& model, const checkpoint::StateDictAdapter& saved,
                           const std::vector<std::string>& patterns);

// Zeroes the gradients of these parameters in all rows of this rank's tiles that are not trained.
void clear_frozen_rows(const TrainedRows& trained, const parallel::ShardedModel& model);

}  // namespace tessera::train
