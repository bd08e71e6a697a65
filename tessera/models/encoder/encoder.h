// Describes an encoder of nn::TransformerBlocks: its embeddings, its layers and the heads of its tasks, and
// what files call them.
#pragma once

#include <string>
#include <vector>

#include "tessera/models/common/model_config.h"
#include "tessera/nn/norm.h"
#include "tessera/nn/rotary_embedding.h"
#include "tessera/nn/transformer_block.h"
#include "tessera/ops/mlp_activation.h"

namespace tessera::models {

// The layer between the hidden state that a classifier reads and its last product.
struct ClassifierDense {
  enum class Activation { Tanh, Relu, Gelu };
  std::string name;
  Activation activation = Activation::Tanh;
  bool has_bias = true;
  std::string norm;            // behind the activation; empty: there is none
  double input_dropout = 0.0;  // of what the layer reads
};

// The head of a masked language model: a dense layer, its activation and a norm before the output projection,
// which has the weight of the embedding.
struct MaskedHead {
  std::string dense, norm;
  ops::Nonlinearity activation = ops::Nonlinearity::Gelu;
  bool has_dense_bias = true;
  std::string bias;     // the module that holds the bias of the projection; empty: there is none
  std::string decoder;  // the projection, under whose name files may hold its weight and bias too
};

// Names are those of the modules in the family's files. Those of the head are whole, those of the embeddings,
// the layers and the final norm begin below `body`. An empty name means that there is no such module.
struct Encoder {
  std::vector<nn::TransformerBlockOptions> blocks;  // one for each layer, none causal
  // The rotary positions that AttentionOptions::rotary counts.
  std::vector<nn::RopeOptions> ropes;
  nn::NormOptions norm;  // of the embeddings, behind the last layer, and in the head
  std::string body, words = "embeddings.word_embeddings", positions = "embeddings.position_embeddings",
                    types = "embeddings.token_type_embeddings", embedding_norm = "embeddings.LayerNorm",
                    layers = "encoder.layer", final_norm;
  int64_t num_types = 2;
  int64_t first_position = 0;      // row of the table of positions that the first token of a text has
  double embedding_dropout = 0.0;  // behind the norm of the embeddings
  ClassifierDense dense;
  double classifier_dropout = 0.0;  // of what the last product of a classifier reads
  std::string classifier = "classifier";
  MaskedHead masked;
};

// The configuration of a family that reads its config.json into a description.
struct EncoderConfig : ModelConfig {
  Encoder encoder;
};

}  // namespace tessera::models
