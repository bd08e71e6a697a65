// Ranks that read different files must not train together.
#pragma once

#include <string>

#include "tessera/comm/communicator.h"
#include "tessera/data/prepare.h"
#include "tessera/train/setup.h"

namespace tessera::train {

// Throws Error(Data, "RANKS-DIFFER"), on every rank alike, unless all ranks hold the same rows, with the same
// tokens and labels, in the same order; names the first rank that differs, and the row. Collective.
void check_same_data(const data::PreparedData& data, comm::Communicator& world);

// The same of streamed rows, by StreamLoader::fingerprint().
void check_same_stream(const std::string& fingerprint, comm::Communicator& world);

// The same, as Error(Model, "RANKS-DIFFER"), of what the ranks read of the base model and of the adapter that
// they continue: `config` (the text of config.json), and names, types, shapes and the first and last bytes of
// every tensor of the plan's files. Collective.
void check_same_model(const PlannedModel& planned, const std::string& config, comm::Communicator& world);

// Of the rows and of all that decides the order in which steps take them.
std::string rows_fingerprint(const data::RowSet& rows, const config::Recipe& recipe);
// Of the base model: its config, and a sample of its weights where an adapter is trained on them.
std::string model_fingerprint(const PlannedModel& planned, const std::string& config);

}  // namespace tessera::train
