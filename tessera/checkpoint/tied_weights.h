// Weights of files whose config.json ties them although they differ.
#pragma once

#include <string>

#include "tessera/checkpoint/stored_tensors.h"

namespace tessera::checkpoint {

// Tells whether two tensors of the files have the same shape and the same numbers, whatever their types. NaN
// equals nothing. Needs 32 MiB of memory, or two rows. Throws Error(Model) for types that are no weights'.
bool equal_values(const StoredTensors& files, const std::string& a, const std::string& b);

// Returns the name of the embedding of tokens among the tensors of any family's files, or of an adapter's;
// empty if there is none, or more than one.
std::string find_embedding(const StoredTensors& files);

// Returns the text of a config.json that says that embedding and output projection are not tied.
std::string untied_config(const std::string& text);

}  // namespace tessera::checkpoint
