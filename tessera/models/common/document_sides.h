// Finds the sources and the targets of an encoder-decoder's documents.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include "tessera/nn/sequence.h"

namespace tessera::models {

// The sides of one document in the line of all: its source is [begin, source_end), its target [target_begin,
// end).
struct SidesOfDocument {
  int64_t begin = 0, source_end = 0, target_begin = 0, end = 0;
};

// Returns the sides of these documents. The rows lie on `device`.
std::shared_ptr<const nn::DocumentSides> document_sides(const std::vector<SidesOfDocument>& documents,
                                                        at::Device device);

// Returns the sides that the batch's type_ids tell. A document of tokens that a layout has added is its own
// source and target. Throws Error(Data, "SEQ2SEQ") for a batch without type_ids,
// for a document in which a token of the source stands behind one of the target, or one that lacks a side,
// and Error(Config, "SEQ2SEQ") for a part of a line.
std::shared_ptr<const nn::DocumentSides> document_sides(const nn::TokenBatch& batch, at::Device device);

}  // namespace tessera::models
