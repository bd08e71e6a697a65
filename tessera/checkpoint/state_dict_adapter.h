// How the tensors of a family's files make up the parameters of its model, and the other way round.
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

// A rectangle of a stored tensor that holds a rectangle of a parameter, element by element in the same order.
struct StoredPart {
  std::string name;             // of the stored tensor
  std::vector<int64_t> shape;   // of the whole stored tensor
  parallel::Box box;            // the part of it
  std::vector<int64_t> offset;  // where the part begins in the parameter, in the parameter's dims
  bool is_transposed = false;   // a matrix that is stored with its dims swapped
  std::vector<std::string>
      aliases;  // other names under which files may hold the stored tensor (tied weights)

  // The part of the parameter.
  parallel::Box in_parameter() const;
};

// The stored tensor `name` is the parameter, of this shape, as it is.
StoredPart stored_as_is(std::string name, std::vector<int64_t> shape, std::vector<std::string> aliases = {});
// The same of a matrix that is stored as its transpose; `shape` is the parameter's.
StoredPart stored_transposed(std::string name, const std::vector<int64_t>& shape);

struct StoredParameter {
  std::string name;
  std::vector<int64_t> shape;
  std::vector<StoredPart> parts;
};

// A table of parameters; their parts tile them, and tile every stored tensor that they name. Reading and
// writing go through the same table, by boxes.
class StateDictAdapter {
 public:
  StateDictAdapter() = default;
  // Throws Error(Internal) for parts that overlap, leave a hole, or disagree about a stored tensor.
  explicit StateDictAdapter(std::vector<StoredParameter> parameters);

  const std::vector<StoredParameter>& parameters() const { return parameters_; }
  // Null for a parameter that the table does not have.
  const StoredParameter* find(std::string_view parameter) const;

  // A stored tensor and what makes it.
  struct StoredTensor {
    std::string name;
    std::vector<std::string> aliases;
    std::vector<int64_t> shape;
    std::vector<std::string> parameters;  // in the order of the table
  };
  // In the order in which the table first names them.
  const std::vector<StoredTensor>& stored_tensors() const { return stored_; }

  // What a box of a parameter has in common with one stored tensor.
  struct Overlap {
    const StoredPart* part = nullptr;
    parallel::Box stored;  // in the stored tensor
    parallel::Box local;   // in the box, from its corner on, in the parameter's dims

    // Those elements of `tile`, which holds the box, in the order of the stored tensor: a view.
    at::Tensor view(const at::Tensor& tile) const;
  };
  // All of the box: every element is in one of the overlaps. Those with one stored tensor stand together.
  // Throws Error(Config) for a box that is not inside the parameter as the table has it.
  std::vector<std::vector<Overlap>> overlaps(std::string_view parameter, const parallel::Box& box) const;

 private:
  std::vector<StoredParameter> parameters_;
  std::unordered_map<std::string, size_t> index_;
  std::vector<StoredTensor> stored_;
};

// How the tensors of files differ from those of a table, by the files' names.
struct TensorMismatches {
  std::vector<std::string> missing, unknown;
  std::vector<std::string> wrong_shape, wrong_type;  // with what is there in brackets

  bool empty() const;
  // All of it, at most 20 names.
  std::string text() const;
};

// `is_ignored` says of a name whether files may hold it although no parameter is made of it.
TensorMismatches compare_tensors(const StateDictAdapter& adapter, const StoredTensors& files,
                                 const std::function<bool(const std::string& name)>& is_ignored);

}  // namespace tessera::checkpoint
