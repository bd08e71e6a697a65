// Refuses ranks that read different files, which must not train together.
#pragma once

#include <cstdint>
#include <string>

#include "tessera/comm/communicator.h"
#include "tessera/data/prepare.h"
#include "tessera/train/setup/plan_model.h"

namespace tessera::train {

// Throws Error(Data, "RANKS-DIFFER"), on every rank alike, unless all ranks hold the same rows, with the same
// tokens and labels, in the same order; names the first rank that differs, and the row. Collective.
void check_same_data(const data::PreparedData& data, comm::Communicator& world);

// Does the same for streamed rows, whose `fingerprint` is StreamLoader::fingerprint(). Collective.
void check_same_stream(const std::string& fingerprint, comm::Communicator& world);

// Throws Error(Model, "RANKS-DIFFER"), on every rank alike, unless all ranks have read the same base model,
// and the same adapter that they continue: `config` (the text of config.json), and the names, dtypes, shapes
// and a sample of the bytes (1 KiB of every MiB, and the end) of every tensor in the plan's files.
// Collective.
void check_same_model(const PlannedModel& planned, const std::string& config, comm::Communicator& world);

// Returns the first rank's clock (text::local_clock()): a template may write the date, and ranks may read
// theirs on two sides of midnight. Collective.
int64_t agreed_clock(comm::Communicator& world);

// Returns a hash of the rows and of all that decides the order in which steps take them.
std::string rows_fingerprint(const data::RowSet& rows, const config::Recipe& recipe);
// Returns a hash of the base model: its config, and a sample of its weights where an adapter is trained on
// them.
std::string model_fingerprint(const PlannedModel& planned, const std::string& config);

}  // namespace tessera::train
