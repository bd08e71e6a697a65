// Describes a run in the log.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tessera/comm/communicator.h"
#include "tessera/config/recipe.h"
#include "tessera/data/prepare_stats.h"
#include "tessera/data/row_store.h"
#include "tessera/optim/optimizer.h"
#include "tessera/parallel/device_mesh.h"
#include "tessera/train/run/trainer.h"
#include "tessera/train/setup/setup.h"

namespace tessera::train {

// Returns "12 rows, 340 tokens, 120 of them trained".
std::string describe_rows(const data::RowSet& rows);
// Warns of records that were left out, if any were.
void warn_of_dropped(const std::vector<data::DatasetStats>& stats);
// These tell what a step takes, what is trained on which mesh, and how the run went. `data_wait_s`: seconds
// that its steps waited for rows.
void describe_batch(const config::Recipe& recipe, int64_t dp_size, int64_t samples_per_step);
void describe_model(const TrainedModel& trained, const parallel::DeviceMesh& mesh, double load_seconds);
void describe_end(const TrainSummary& summary, double data_wait_s);
// Tells what the updates have moved to and from a drive.
void describe_traffic(const optim::StateTraffic& traffic);
// Tells the peak memory of the rank that needed most, beside what was expected (expect_memory()). Collective.
void describe_memory(std::optional<int64_t> expected_bytes, comm::Communicator& world);

}  // namespace tessera::train
