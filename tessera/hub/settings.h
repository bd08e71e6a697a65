// How the hub is reached, as the environment says it.
#pragma once

#include <string>

#include "tessera/io/http_client.h"

namespace tessera::hub {

// Returns the address of the hub, without a slash at its end: HF_ENDPOINT, or https://huggingface.co. Throws
// E-CONFIG-ENVIRONMENT for one that begins with neither http:// nor https://.
std::string endpoint();

// Returns the user's token: HF_TOKEN, or the text of the file `token` in HF_HOME, which `hf auth login`
// writes; "" if there is none. Throws E-CONFIG-ENVIRONMENT for a text that no token can be.
std::string token();

// Returns whether nothing may be fetched: HF_HUB_OFFLINE or TRANSFORMERS_OFFLINE is 1, true, yes or on.
bool is_offline();

// How a repository is fetched or uploaded.
struct Limits : io::HttpLimits {
  int connections = 4;  // at a time
};

}  // namespace tessera::hub
