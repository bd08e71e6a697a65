// Presents a GGUF file as the Hugging Face model that it holds.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "tessera/checkpoint/gguf_architecture.h"
#include "tessera/core/dtype.h"
#include "tessera/io/gguf.h"
#include "tessera/io/safetensors.h"

namespace tessera::checkpoint {

// One weight of the model and the tensor of the file that holds it.
struct GgufWeight {
  // Hugging Face's name, shape (one dim or two), and the type that holds its values: bfloat16 for matrices
  // that are stored in it, float32 for others.
  io::TensorSpec spec;
  const io::GgufTensor* tensor = nullptr;  // owned by the GgufModel
  // Size of the heads whose rows (or elements, of a vector) lie interleaved in the file; 0 = not interleaved.
  int64_t head_dim = 0;
};

// Safe to read from several threads.
class GgufModel {
 public:
  // Throws Error(Model) for an architecture that is not among `known`, for a tensor that it does not have,
  // for a missing tensor or missing metadata, and for a setting that is no valid number.
  GgufModel(io::GgufFile file, const std::vector<GgufArchitecture>& known);

  const std::string& path() const { return file_.path(); }
  const std::string& model_type() const { return model_type_; }  // "llama"
  // The weights in file order.
  const std::vector<GgufWeight>& weights() const { return weights_; }
  // Returns the text of config.json for weights of type F32, BF16 or F16.
  std::string config(DType dtype) const;
  // Returns the text of generation_config.json; empty if the file names no special tokens.
  std::string generation_config() const;

  // Expands rows [first_row, first_row + num_rows) of a weight to float32, into destination[num_rows *
  // columns]. A vector counts as one row. Rows are in Hugging Face's order: those of the query and key
  // projections, which files of the llama architecture keep interleaved for their rotary embedding, are put
  // back.
  void read_rows(const GgufWeight& weight, int64_t first_row, int64_t num_rows, float* destination) const;
  // Copies the same rows of a weight of two dims as they are, in the file's blocks; each row takes
  // io::GgufFile::row_bytes() bytes.
  void read_blocks(const GgufWeight& weight, int64_t first_row, int64_t num_rows, char* destination) const;

 private:
  io::GgufFile file_;
  std::string model_type_;
  nlohmann::ordered_json config_;
  std::vector<GgufWeight> weights_;
};

}  // namespace tessera::checkpoint
