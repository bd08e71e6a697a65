// Attention over documents of any lengths, and its gradient, as graphs of operations for cuDNN.
#pragma once

#include <compare>
#include <cstdint>
#include <vector>

#include "tessera/ops/cuda/cudnn_graph.h"

namespace tessera::ops::cuda {

// What a kernel is made for. Documents may be fewer (then the last ones have no tokens) and shorter.
struct AttentionShape {
  dnn::DataType type;  // kBF16 or kF16
  int64_t documents, longest_query, longest_key;
  int64_t heads, kv_heads, head_dim;
  // The band of keys that a query sees, as VarlenCall has it; the distance of the two ends of a document is
  // looked at where `is_from_end`, else it is that of the two beginnings too.
  int64_t left, right;  // -1: unbounded
  bool is_from_end;
  float scale;

  auto operator<=>(const AttentionShape&) const = default;
};

// The numbers of the memory that the graphs work on (CudnnGraph::run). Rows of tokens are dense: [queries,
// heads, head_dim] and [keys, kv_heads, head_dim] in the shape's type.
enum class AttentionMemory : int64_t {
  Query = 1,
  Key,
  Value,
  Out,
  LogSum,         // [queries, heads] float32
  QueryOffsets,   // [documents + 1] int64: the element of the queries at which each document begins
  KeyOffsets,     // the same of the keys
  LogSumOffsets,  // and of LogSum
  QueryLengths,   // [documents] int32
  KeyLengths,
  GradOut,
  GradQuery,
  GradKey,
  GradValue,
  // Scratch of the backward.
  SumOfQuery,  // the gradient of the queries, in float32
  WideKey,     // that of the keys before the heads of a group are summed
  WideValue,
  Delta,  // what a query's gradient and output have in common, [queries, heads] float32
};

// Query, Key, Value -> Out, LogSum.
void add_attention_forward(CudnnGraph& graph, const AttentionShape& shape);
// Query, Key, Value, Out, LogSum, GradOut -> GradQuery, GradKey, GradValue. LogSum and Out may be those of a
// softmax over other keys too. The sum over a document's keys has an order that varies.
void add_attention_backward(CudnnGraph& graph, const AttentionShape& shape);

// What the backward needs beside the kernel's own workspace, for so many tokens.
struct AttentionScratch {
  AttentionMemory what;
  int64_t bytes;
};
std::vector<AttentionScratch> backward_scratch(const AttentionShape& shape, int64_t queries, int64_t keys);

}  // namespace tessera::ops::cuda
