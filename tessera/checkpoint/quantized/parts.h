// The tensors that make up one quantised weight of a folder, and errors about them.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/checkpoint/quantized/coded_weight.h"
#include "tessera/core/error.h"

namespace tessera::checkpoint::quantized {

// Makes the Error(Model, "QUANTIZED") about a tensor of the folder, for the caller to complete and throw.
Error broken(const io::ModelFiles& files, const std::string& tensor, const std::string& what);

// The weights that a format's reader finds in a folder.
struct Found {
  std::vector<CodedWeight> weights;
  std::vector<std::string> used;  // the names of all tensors that weights are made of, and of their helpers
};

// The tensors of one module, by what stands behind the module's path: ".weight", ".qweight", ".scales".
class Parts {
 public:
  Parts(const io::ModelFiles& files, std::string path) : files_(&files), path_(std::move(path)) {}

  const std::string& path() const { return path_; }
  std::string name_of(std::string_view suffix) const { return path_ + std::string(suffix); }
  const io::ModelFiles& files() const { return *files_; }
  void add(std::string_view suffix, const io::TensorInfo& tensor) { tensors_[suffix] = &tensor; }

  bool has(std::string_view suffix) const { return tensors_.contains(suffix); }
  // Returns the tensor; null if there is none.
  const io::TensorInfo* find(std::string_view suffix) const;
  // Returns the tensor, whose type must be one of `types`. Throws the Error for a missing one.
  const io::TensorInfo& require(std::string_view suffix, std::initializer_list<DType> types) const;
  // Does the same for a matrix. A shape is compared where it is not negative.
  const io::TensorInfo& require_matrix(std::string_view suffix, std::initializer_list<DType> types,
                                       int64_t rows = -1, int64_t columns = -1) const;
  // Adds the names of those of the tensors that there are to what is used.
  void note_used(std::span<const std::string_view> suffixes, Found& found) const;

 private:
  const io::ModelFiles* files_;
  std::string path_;
  std::map<std::string_view, const io::TensorInfo*> tensors_;
};

// Returns the modules that have at least one tensor with one of the suffixes. The longest suffix counts.
std::vector<Parts> modules_of(const io::ModelFiles& files, std::span<const std::string_view> suffixes);

// Throws the Error unless [rows, columns] can be the shape of a weight, the product of the two included.
void check_size(const Parts& parts, std::string_view suffix, int64_t rows, int64_t columns);

// Returns the weight P.weight, with the form for `group` columns that have one scale. Its type, codes and
// scales are for the caller to set.
CodedWeight make_weight(const Parts& parts, std::string_view codes_in, int64_t rows, int64_t columns,
                        io::BlockKind kind, int64_t group);

// Reads all of a tensor as float32: of a floating type, or of e4m3.
std::vector<float> read_floats(const io::ModelFiles& files, const io::TensorInfo& tensor);

}  // namespace tessera::checkpoint::quantized
