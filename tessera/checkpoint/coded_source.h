// Values of weights that are kept in blocks of codes (nn::Linear::set_form()).
#pragma once

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include <c10/core/ScalarType.h>

#include "tessera/checkpoint/parameter_source.h"
#include "tessera/io/weight_blocks.h"

namespace tessera::checkpoint {

// How a weight is quantised while it is read.
struct Quantization {
  // The elements that share a scale, in the flat order of the whole weight; a multiple of the form's
  // elements. 0: a row shares it.
  int64_t group = 64;
  bool double_quantization = false;  // io::quantize_scales()
};

// A coded weight.
struct CodedParameter {
  io::BlockForm form;
  std::vector<int64_t> shape;  // [out, in] of the whole weight, in values
  // The type in which values are read before they are quantised; codes depend on it.
  at::ScalarType type = at::kFloat;
  // If set, the values of the other source are quantised. If not, the stored tensor `tensor` has blocks of
  // its own, which are taken as they are; blocks of `form` may be parts of them.
  std::optional<Quantization> quantization;
  std::string tensor;
  int64_t first_row = 0;  // of the weight in the stored tensor, which may hold several
};

// Returns a source that gives the coded parameters as blocks, [rows, bytes], and all others as `values` does.
// A box of a coded parameter is one of its bytes; with a destination of a floating type, however, it is one
// of the weight's values, and the values of the codes are given. `values` knows every coded parameter that is
// quantised under its name, with its whole shape; `files` may be null if none is stored in blocks. An
// element's code does not depend on the box. Needs 16 MiB beside the destination, and with double
// quantisation, or with groups that do not end with a row, the scales of the whole weight, for which all of
// it is read once.
std::shared_ptr<const ParameterSource> coded_source(std::shared_ptr<const ParameterSource> values,
                                                    std::shared_ptr<const StoredTensors> files,
                                                    std::unordered_map<std::string, CodedParameter> coded);

}  // namespace tessera::checkpoint
