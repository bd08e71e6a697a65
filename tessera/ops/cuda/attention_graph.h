// Attention over documents of any lengths, and its gradient, as graphs of operations for cuDNN.
#pragma once

#include <compare>
#include <cstdint>
#include <vector>

#include "tessera/ops/cuda/cudnn_graph.h"

namespace tessera::ops::cuda {

// The properties that a kernel is made for. A call may have fewer documents (the last ones then have no
// tokens), and shorter ones.
struct AttentionShape {
  dnn::DataType type;  // kBF16 or kF16
  int64_t documents, longest_query, longest_key;
  int64_t heads, kv_heads, head_dim;
  // The band of keys that a query sees, as in VarlenCall. With is_from_end the kernel aligns the ends of a
  // document's queries and keys; otherwise their beginnings, which comes to the same if queries and keys are
  // equally many or nothing is bounded.
  int64_t left, right;  // -1: unbounded
  bool is_from_end;
  float scale;

  auto operator<=>(const AttentionShape&) const = default;
};

// Numbers of the memory that the graphs work on (CudnnGraph::run). Rows of tokens are dense: [queries, heads,
// head_dim] and [keys, kv_heads, head_dim] in the shape's type.
enum class AttentionMemory : int64_t {
  Query = 1,
  Key,
  Value,
  Out,
  LogSum,         // [queries, heads] float32
  QueryOffsets,   // [documents + 1] int64: the element of the queries at which each document begins
  KeyOffsets,     // [documents + 1] int64: that of the keys
  LogSumOffsets,  // [documents + 1] int64: that of LogSum
  QueryLengths,   // [documents] int32
  KeyLengths,
  GradOut,
  GradQuery,
  GradKey,
  GradValue,
  // Scratch of the backward.
  SumOfQuery,  // the gradient of the queries, in float32
  WideKey,     // the gradient of the keys before the heads of a group are summed
  WideValue,
  Delta,  // dot products of queries' outputs and their gradients, [queries, heads] float32
};

// Adds the operations that make Out and LogSum of Query, Key and Value.
void add_attention_forward(CudnnGraph& graph, const AttentionShape& shape);
// Adds the operations that make GradQuery, GradKey and GradValue of Query, Key, Value, Out, LogSum and
// GradOut. LogSum and Out may be those of a softmax over further keys too. The sum over a document's keys has
// an order that varies from run to run.
void add_attention_backward(CudnnGraph& graph, const AttentionShape& shape);

// Memory that the backward needs beside the kernel's own workspace, for this many tokens.
struct AttentionScratch {
  AttentionMemory what;
  int64_t bytes;
};
std::vector<AttentionScratch> backward_scratch(const AttentionShape& shape, int64_t queries, int64_t keys);

}  // namespace tessera::ops::cuda
