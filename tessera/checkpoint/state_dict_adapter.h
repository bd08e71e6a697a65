// A table that says how the tensors of files make up the parameters of a model, and the other way round.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <ATen/core/Tensor.h>

#include "tessera/checkpoint/stored_tensors.h"
#include "tessera/parallel/layout.h"

namespace tessera::checkpoint {

// A rectangle of a stored tensor that holds a rectangle of a parameter: the same elements in the same order,
// or in that of the transpose. The stored tensor may have more dims, before those of the parameter, along
// which the rectangle has the size 1. A stored number, of no dims, holds a parameter of shape [1].
struct StoredPart {
  std::string name;             // name of the stored tensor
  std::vector<int64_t> shape;   // shape of the whole stored tensor
  parallel::Box box;            // the rectangle of the stored tensor
  std::vector<int64_t> offset;  // where the rectangle of the parameter begins, in the parameter's dims
  bool is_transposed = false;   // whether the matrix is stored with its dims swapped
  std::vector<std::string>
      aliases;  // other names under which files may hold the stored tensor (tied weights)

  // Returns the rectangle of the parameter.
  parallel::Box in_parameter() const;
  // Returns the number of dims that the stored tensor has before those of the parameter.
  size_t leading_dims() const { return shape.empty() ? 0 : shape.size() - offset.size(); }
};

// Returns the part that says: the stored tensor `name` is the whole parameter, of this shape, as it is.
StoredPart stored_as_is(std::string name, std::vector<int64_t> shape, std::vector<std::string> aliases = {});
// Returns the part that says: the stored tensor `name`, of no dims, is the parameter, of shape [1].
StoredPart stored_number(std::string name);
// Returns the part that says: the stored tensor `name` is the transpose of the parameter, a matrix of this
// shape.
StoredPart stored_transposed(std::string name, const std::vector<int64_t>& shape);

// A parameter and the stored parts that it is made of.
struct StoredParameter {
  std::string name;
  std::vector<int64_t> shape;
  std::vector<StoredPart> parts;
};

// A table of parameters. The parts of each parameter tile it, and all parts together tile every stored tensor
// that they name. Reading and writing go through the same table, by boxes.
class StateDictAdapter {
 public:
  StateDictAdapter() = default;
  // Throws Error(Internal) for parts that overlap, leave a hole, or disagree about a stored tensor.
  explicit StateDictAdapter(std::vector<StoredParameter> parameters);

  const std::vector<StoredParameter>& parameters() const { return parameters_; }
  // Returns null for a parameter that the table does not have.
  const StoredParameter* find(std::string_view parameter) const;

  // A stored tensor and the parameters that it holds parts of.
  struct StoredTensor {
    std::string name;
    std::vector<std::string> aliases;
    std::vector<int64_t> shape;
    std::vector<std::string> parameters;  // in the order of the table
  };
  // The stored tensors, in the order in which the table first names them.
  const std::vector<StoredTensor>& stored_tensors() const { return stored_; }

  // The elements that a box of a parameter has in common with one part.
  struct Overlap {
    const StoredPart* part = nullptr;
    parallel::Box stored;  // their place in the stored tensor
    parallel::Box local;   // their place in the box, relative to its corner, in the parameter's dims

    // Returns a view of these elements of `tile`, a tensor of the box's size, in the dims of the stored
    // tensor.
    at::Tensor view(const at::Tensor& tile) const;
  };
  // Cuts a box of a parameter into its overlaps with the parts: every element of the box is in exactly one.
  // Each entry of the result holds the overlaps with one stored tensor. Throws Error(Config) for a box that
  // is not inside the parameter as the table has it.
  std::vector<std::vector<Overlap>> overlaps(std::string_view parameter, const parallel::Box& box) const;

 private:
  std::vector<StoredParameter> parameters_;
  std::unordered_map<std::string, size_t> index_;
  std::vector<StoredTensor> stored_;
};

// Differences between the tensors of files and those of a table, as names of stored tensors.
struct TensorMismatches {
  std::vector<std::string> missing, unknown;
  std::vector<std::string> wrong_shape, wrong_type;  // each name with the shape or type found, in brackets

  bool empty() const;
  // Describes all differences, with at most 20 names.
  std::string text() const;
};

// Compares the tensors of the files with the table. `is_ignored` tells of a name whether files may hold it
// although no parameter is made of it.
TensorMismatches compare_tensors(const StateDictAdapter& adapter, const StoredTensors& files,
                                 const std::function<bool(const std::string& name)>& is_ignored);

}  // namespace tessera::checkpoint
