// Names what a parameter is for.
#pragma once

#include <map>
#include <string>

namespace tessera::nn {

// The embedding is that of tokens, and a weight that is both embedding and output head counts as embedding.
// LayerTable is for a further table of tokens, whose rows the layers share (nn::LayerInputs).
// Classifier is for the last product of a classifier.
// All parameters of a norm, a router or an expert, biases too, are of its role; Bias is for those of other
// layers. Adapters are Other.
enum class ParameterRole {
  Other,
  Embedding,
  LayerTable,
  Positions,
  OutputHead,
  Classifier,
  Norm,
  Bias,
  Expert,
  Router
};

// Roles by the names of parameters; those that it does not list are Other.
using ParameterRoles = std::map<std::string, ParameterRole>;

}  // namespace tessera::nn
