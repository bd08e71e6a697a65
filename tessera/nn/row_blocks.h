// Tells which rows of a matrix belong together.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace tessera::nn {

// The rows of a matrix in blocks. Each `group` rows begin with blocks of `head` rows, those of the queries or
// keys of an attention head, and end with `single` rows that are a block each, such as those of values.
struct RowBlocks {
  int64_t head = 1, group = 1, single = 0;

  int64_t heads_of_group() const { return (group - single) / head; }
  int64_t blocks_of_group() const { return heads_of_group() + single; }
  int64_t num_blocks(int64_t rows) const { return rows / group * blocks_of_group(); }
};

// Blocks by the names of parameters; each row of those that it does not list is a block.
using ParameterBlocks = std::map<std::string, RowBlocks>;

}  // namespace tessera::nn
