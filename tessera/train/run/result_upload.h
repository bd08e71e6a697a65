// Uploads the result of a run to the Hugging Face hub, where the recipe says so.
#pragma once

#include "tessera/comm/communicator.h"
#include "tessera/config/recipe.h"
#include "tessera/train/run/run_signals.h"

namespace tessera::train {

// Throws where no upload can succeed, as without a token; asks the hub nothing. The second is collective,
// like prepare_result_upload(): the first rank of `world` alone needs the token.
void check_result_upload(const config::UploadConfig& keys, const config::KeyPlaces& places);
void check_result_upload(const config::UploadConfig& keys, const config::KeyPlaces& places,
                         comm::Communicator& world);

// Makes the repository that the recipe names, and sees that the token may write to it, so that no run
// learns at its end that it may not. Throws what hub::prepare_upload() throws.
void prepare_result_upload(const config::UploadConfig& keys, const config::KeyPlaces& places,
                           comm::Communicator& world);

// Uploads the result in output_dir. Where that fails, or `signals` hears a request to stop, the result stays
// as it is, and one warning names the command that uploads it. Collective: the first rank of `world` uploads,
// and the others wait for it. Throws only what collectives throw.
void upload_result(const config::Recipe& recipe, RunSignals& signals, comm::Communicator& world);

}  // namespace tessera::train
