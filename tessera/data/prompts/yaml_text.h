// Writes values as YAML the way PyYAML's dump() does; some prompts of 2023 hold such text.
#pragma once

#include <string>

#include <nlohmann/json_fwd.hpp>

namespace tessera::data {

// Returns what yaml.dump(value, default_flow_style=False) gives: keys in order, lines folded at 80 columns,
// ASCII only. Throws Error(Data) for a value nested deeper than 64 or a key longer than 120 bytes.
std::string yaml_text(const nlohmann::ordered_json& value);

}  // namespace tessera::data
