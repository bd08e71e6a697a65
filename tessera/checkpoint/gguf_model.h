// A GGUF file as the Hugging Face model that it holds.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "tessera/core/dtype.h"
#include "tessera/io/gguf.h"
#include "tessera/io/safetensors.h"

namespace tessera::checkpoint {

// One weight: what a Hugging Face folder would call it, expanded to float32, and where the file keeps it.
struct GgufWeight {
  io::TensorSpec spec;  // of one dim or two
  const io::GgufTensor* tensor = nullptr;
  // The rows (elements of a vector) of heads of this size lie interleaved in the file; 0: they do not.
  int64_t head_dim = 0;
};

// Safe to read from several threads.
class GgufModel {
 public:
  // Throws Error(Model) for an architecture or a tensor that it does not know, for missing metadata and for a
  // setting that is not a number.
  explicit GgufModel(io::GgufFile file);

  const std::string& path() const { return file_.path(); }
  const std::string& model_type() const { return model_type_; }  // "llama", "qwen2", "qwen3"
  // In file order.
  const std::vector<GgufWeight>& weights() const { return weights_; }
  // The text of config.json, for weights of type F32, BF16 or F16.
  std::string config(DType dtype) const;
  // Of generation_config.json; empty where there is nothing to say.
  std::string generation_config() const;

  // Expands rows [first_row, first_row + num_rows) of a weight, in Hugging Face's order, to
  // destination[num_rows * columns]. A vector is one row. The rows of the query and key projections, which
  // files of the llama architecture keep interleaved for their rotary embedding, are put back.
  void read_rows(const GgufWeight& weight, int64_t first_row, int64_t num_rows, float* destination) const;
  // The same rows of a weight of two dims as the file's blocks, io::GgufFile::row_bytes() each.
  void read_blocks(const GgufWeight& weight, int64_t first_row, int64_t num_rows, char* destination) const;

 private:
  io::GgufFile file_;
  std::string model_type_;
  nlohmann::ordered_json config_;
  std::vector<GgufWeight> weights_;
};

}  // namespace tessera::checkpoint
