// Several LoRA adapters of one base as one adapter.
#pragma once

#include <string>
#include <vector>

#include "tessera/peft/lora.h"

namespace tessera::peft {

struct WeightedAdapter {
  std::string folder;
  double weight = 1.0;
  std::string name = {};
};

// How factors are combined, by the names of PEFT's add_weighted_adapter(). With weights w, scales s: Cat
// stands the factors side by side, so that the change of a layer is the sum of w s B A. Linear adds A and B,
// each times the root of w s, whose product is not that sum; it needs adapters of one rank, and keeps it.
enum class Combination { Cat, Linear };

struct AdapterSet {
  std::vector<WeightedAdapter> adapters;
  Combination combination = Combination::Cat;
};

// Returns why an adapter with these options is not a sum of low-rank products beside the layers of a base,
// and nothing else; empty if it is.
std::string why_no_sum(const LoraOptions& options);

// Returns what an adapter with these options changes beyond the outputs of layers that stay as they are;
// empty if that is nothing.
std::string why_beyond_layers(const LoraOptions& options);

// Reads "DIR", "DIR:WEIGHT", "NAME=DIR" or "NAME=DIR:WEIGHT"; A path that exists as it is written is taken
// so. Throws Error(Config, "ADAPTER-WEIGHT") for a weight that is not finite, or 0.
WeightedAdapter read_weighted_adapter(const std::string& text);

// Writes one adapter that does what the set does into the folder `output`, which must exist, with the
// tokenizer's files of the first adapter. A layer that only some of them adapt gets their change. The factors
// are combined in float64 and written as float32, or as float64 if the files hold that. Throws
// Error(Model, "ADAPTER") for adapters that cannot be added: other kinds than plain LoRA, modules that are
// trained whole, rows of tokens, parameters of experts, and factors of other shapes.
void combine_adapters(const AdapterSet& set, const std::string& output);

}  // namespace tessera::peft
