// Chooses the layers of a model that keep their weights in blocks of codes, and says where these come from.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "tessera/checkpoint/coded_source.h"
#include "tessera/checkpoint/state_dict_adapter.h"
#include "tessera/checkpoint/stored_tensors.h"
#include "tessera/models/common/causal_lm.h"

namespace tessera::models {

// How the weights that files hold as values are quantised while they are read.
struct QuantizeOptions {
  enum class Kind { None, FourBit, EightBit };
  Kind kind = Kind::None;
  io::BlockKind four_bit = io::BlockKind::Nf4;  // Nf4 or Fp4
  bool double_quantization = false;
  // Modules that keep their values, besides the output head and routers: those whose name is one of these,
  // ends in '.' and one of these, or begins with one of these and '.'.
  std::vector<std::string> skipped;
  bool experts = false;  // also the layers of experts
  // Also keep the blocks of embeddings and of the output head, if the files have such. For a model that is
  // only run, and not cut by tensor parallelism.
  bool tables = false;
  // Ranks over which tensor parallelism will cut the layers.
  int64_t tensor_parallel_size = 1;
};

// Gives the linear layers their forms (nn::Linear::set_form()): that of the files for a weight that is stored
// in blocks. If the files hold none, all others get that of the options. The model is on the meta device and
// has its whole shapes; `table` is its state_dict_adapter(), made before. `files`: null for a model without
// files. Returns the coded parameters, for checkpoint::coded_source(). Throws Error(Config,
// "TENSOR-PARALLEL") where the blocks of the files cannot be cut as the ranks need it.
std::unordered_map<std::string, checkpoint::CodedParameter> quantize_layers(
    CausalLM& model, const checkpoint::StateDictAdapter& table, const checkpoint::StoredTensors* files,
    const QuantizeOptions& options);

// Returns whether the files hold a weight in blocks.
bool holds_blocks(const checkpoint::StoredTensors& files);

}  // namespace tessera::models
