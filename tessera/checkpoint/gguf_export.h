// Writes a model's weights as the tensors of a GGUF file.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/checkpoint/gguf_architecture.h"
#include "tessera/checkpoint/state_dict_adapter.h"
#include "tessera/checkpoint/stored_tensors.h"
#include "tessera/io/gguf_writer.h"

namespace tessera::checkpoint {

// Says which types the matrices of a file have, under the name that llama.cpp's llama-quantize has for it.
struct GgufMixture {
  const char* name;
  io::GgmlType type;   // of most matrices
  uint32_t file_type;  // "general.file_type"
};
// Finds a mixture by its name, in letters of any case; nothing if there is none.
std::optional<GgufMixture> find_gguf_mixture(std::string_view name);
// Lists the names: "F32, F16, ...".
std::string gguf_mixture_names();

// Describes the tensors of a file before they are written.
struct GgufExport {
  struct Tensor {
    std::string stored;       // name in the model's files; empty for the factors of rotary positions
    bool is_rotated = false;  // its rows are interleaved in the file
  };
  std::vector<io::GgufTensorSpec> specs;
  std::vector<Tensor> tensors;  // one for each of the specs
  int64_t head_dim = 0;
  std::vector<float> rope_factors;
};

// Plans the tensors of a model whose files hold those of `table`, in the types that llama-quantize gives
// them: vectors stay float32, the output's matrix and some others keep more bits than the rest, and a row
// that does not divide into blocks of the type gets another one. `rope_factors` become a tensor unless
// they are empty. Throws Error(Model, "UNSUPPORTED") for a tensor that the architecture has no name
// for.
GgufExport plan_gguf(const GgufArchitecture& architecture, const StateDictAdapter& table,
                     const StoredTensors& files, const GgufMixture& mixture, int64_t num_layers,
                     int64_t head_dim, std::vector<float> rope_factors);

// Writes the factors of rotary positions, without which the file's metadata are not whole; nothing if the
// plan has none.
void write_gguf_rope(const GgufExport& plan, io::GgufWriter& writer);
// Writes the other planned tensors, some MiB of one at a time. Throws Error(Numerics, "WEIGHT") for a value
// that is not finite, or not in the type.
void write_gguf_tensors(const GgufExport& plan, const StoredTensors& files, io::GgufWriter& writer);

}  // namespace tessera::checkpoint
