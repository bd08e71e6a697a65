// How the hub is reached, as the environment says it.
#pragma once

#include <string>

namespace tessera::hub {

// Returns the address of the hub, without a slash at its end: HF_ENDPOINT, or https://huggingface.co. Throws
// E-CONFIG-ENVIRONMENT for one that begins with neither http:// nor https://.
std::string endpoint();

// Returns the user's token: HF_TOKEN, or the text of the file `token` in HF_HOME, which `hf auth login`
// writes; "" if there is none. Throws E-CONFIG-ENVIRONMENT for a text that no token can be.
std::string token();

// Returns whether nothing may be fetched: HF_HUB_OFFLINE or TRANSFORMERS_OFFLINE is 1, true, yes or on.
bool is_offline();

// How long one who downloads waits, and how often.
struct Limits {
  double connect_s = 10;         // for a connection to be made
  double stall_s = 60;           // without any byte of an answer
  int attempts = 6;              // in a row that bring nothing
  int unreachable_attempts = 2;  // in a row in which no connection is made
  double first_pause_s = 1;      // before the second attempt; each later pause is twice as long
  double longest_asked_s = 600;  // pause that a server may ask for
  int connections = 4;           // at a time
};

}  // namespace tessera::hub
