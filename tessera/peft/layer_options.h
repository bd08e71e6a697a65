// The rank and the scale of each layer's adapter.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tessera/peft/lora.h"
#include "tessera/peft/targets.h"

namespace tessera::peft {

class LayerOptions {
 public:
  // Throws Error(Config, "LORA-TARGET") for a key of a pattern that does not parse.
  explicit LayerOptions(LoraOptions options);

  // Returns the options with the rank and alpha that rank_pattern and alpha_pattern give the layer of this
  // name, and without the patterns.
  LoraOptions operator()(const std::string& layer) const;

 private:
  LoraOptions options_;  // without the patterns
  std::vector<std::pair<NamePattern, int64_t>> ranks_;
  std::vector<std::pair<NamePattern, double>> alphas_;
};

}  // namespace tessera::peft
