// A weight that a folder keeps in codes and scales, which may lie in several tensors: read as blocks or
// values.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "tessera/io/model_files.h"
#include "tessera/io/weight_blocks.h"
#include "tessera/parallel/layout.h"

namespace tessera::checkpoint::quantized {

using Files = std::shared_ptr<const io::ModelFiles>;
using parallel::Box;

// The codes of a matrix. Safe to read from several threads, as all below.
class Codes {
 public:
  virtual ~Codes() = default;
  // Writes the codes in `box`, one a byte, row after row. The box is not empty.
  virtual void read(const Box& box, uint8_t* codes) const = 0;
};

// The scales of a matrix's blocks.
class Scales {
 public:
  virtual ~Scales() = default;
  // Writes the scale of each block in `box`, a box of whole blocks of `elements` elements, row after row.
  // `zeros` gets the blocks' zero codes; it is null for forms that have none.
  virtual void read(const Box& box, int64_t elements, float* scales, float* zeros) const = 0;
};

struct CodedWeight {
  io::TensorSpec spec;   // [out, in]; the type of the folder's plain weights
  std::string codes_in;  // the tensor that has the codes, for errors
  io::BlockForm form;
  std::shared_ptr<const Codes> codes;
  std::shared_ptr<const Scales> scales;
  bool is_by_columns = false;  // the files keep a column's codes together, not a row's
  // If above 0, the rows are those of so many matrices, one after the other, and the model's tensor is
  // [matrices, in, out].
  int64_t matrices = 0;

  int64_t rows() const { return spec.shape[0]; }
  int64_t columns() const { return spec.shape[1]; }
  // Tells whether blocks take less memory than bfloat16. They do not if each column has a scale of its own.
  bool saves_memory() const { return form.bytes < 2 * form.elements; }
};

// Returns the form of blocks that are as large as a block can be: all elements of a block belong to one group
// of `group` columns, and a row of `columns` is whole blocks.
io::BlockForm fitting_form(io::BlockKind kind, int64_t columns, int64_t group);

// Writes `box` of the weight, whole blocks, to `destination`: bytes, [rows, form.row_bytes(columns)], dense.
// Throws Error(Model, "QUANTIZED") for scales and codes that are no numbers.
void read_blocks(const io::ModelFiles& files, const CodedWeight& weight, const Box& box,
                 const at::Tensor& destination);
// Writes the values in `box`, which may begin and end inside blocks, to `destination`: of the box's size,
// with any strides, on any device, of any floating type. They are computed in float32.
void read_values(const io::ModelFiles& files, const CodedWeight& weight, const Box& box,
                 const at::Tensor& destination);

}  // namespace tessera::checkpoint::quantized
