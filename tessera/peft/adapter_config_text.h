// The text of adapter_config.json, as PEFT reads it.
#pragma once

#include <string>

#include "tessera/peft/lora.h"

namespace tessera::peft {

// Returns the configuration of the adapter that the files hold; `base_model` is what base_model_name_or_path
// shall say.
std::string adapter_config_text(const LoraOptions& options, const LoraTargets& targets,
                                const std::string& base_model);

}  // namespace tessera::peft
