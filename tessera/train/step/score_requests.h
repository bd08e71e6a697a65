// Scores requests of tasks with the model that is trained, on the layout on which it is trained.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "tessera/generation/score_tokens.h"
#include "tessera/parallel/device_mesh.h"
#include "tessera/scoring/encode_requests.h"
#include "tessera/train/setup/setup.h"

namespace tessera::train {

// Returns what generation::score_tokens() would, on every rank: the requests are dealt to the data-parallel
// ranks as micro-batches of up to `max_tokens` tokens, or of one longer request. The loss of a position must
// be the plain cross entropy (TaskHead::set_loss_terms). Calls `on_pass` with the number of requests that are
// done; where that returns false, on all ranks alike, the scoring ends and returns nothing. All ranks give
// the same requests. Collective.
std::optional<std::vector<generation::TokenScore>> score_requests(
    TrainedModel& trained, const parallel::DeviceMesh& mesh, std::span<const scoring::TokenRequest> requests,
    int64_t max_tokens, const std::function<bool(int64_t done)>& on_pass);

}  // namespace tessera::train
