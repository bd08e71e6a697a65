// The gated delta rule over a run of chunks of tokens, as products of matrices. These are the inner parts of
// gated_delta_rule.h, below autograd.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "tessera/ops/gated_delta_rule.h"

namespace tessera::ops {

constexpr int64_t kDeltaChunk = 64;  // tokens

// Tells which tokens of a line share a document, chunk by chunk. All are bool.
struct ChunkMarks {
  at::Tensor sees;     // [chunks, 1, kDeltaChunk, kDeltaChunk]: row's token is not before column's
  at::Tensor carried;  // [chunks, 1, kDeltaChunk]: the document began before the chunk
  at::Tensor lasts;    // [chunks, 1, kDeltaChunk]: the document goes on until the end of the chunk
  at::Tensor keeps;    // [chunks, 1]: the document before the chunk goes on until its end

  int64_t chunks() const { return keeps.size(0); }
  ChunkMarks narrow(int64_t first, int64_t count) const;
};

// Returns the marks of the documents. The last chunk is filled up with tokens of the last one. `continues`:
// the first document began before the line.
ChunkMarks chunk_marks(const std::vector<int64_t>& document_starts, bool continues, at::Device device);

// Some heads of a run of chunks, in the type of computation: [chunks, heads, kDeltaChunk, ...]. What the
// tokens of a chunk write, as rows U, solves (1 + A) U = diag(strength) (V - diag(before) K S), where S is
// the memory before the chunk and A[i, j] = strength_i (k_i . k_j) between_ij for j < i. The result is
// diag(before) Q S + (Q K^T * between) U, and the memory after it is through S + (diag(after) K)^T U.
class DeltaChunks {
 public:
  // inputs: the tokens of these chunks, of which the last may be incomplete.
  DeltaChunks(const DeltaInputs& inputs, const DeltaHead& head, const ChunkMarks& marks);

  // Computes the result, [chunks, heads, kDeltaChunk, value_dim]. `memory`, [heads, key_dim, value_dim],
  // becomes that after the last chunk; `memories`, [chunks, heads, key_dim, value_dim], are those before each
  // chunk, written.
  at::Tensor forward(at::Tensor& memory, const at::Tensor& memories) const;

  struct Gradients {
    at::Tensor q, k, v, log_decay, strength;  // of the inputs, [chunks, heads, kDeltaChunk, ...]
  };
  // `grad`: of the result; `memories` are those that forward() wrote. `grad_memory`, the gradient of the
  // memory after the last chunk, becomes that of the memory before the first.
  Gradients backward(const at::Tensor& grad, const at::Tensor& memories, at::Tensor& grad_memory) const;

 private:
  // Returns what (1 + A) X = rows solves.
  at::Tensor solved(const at::Tensor& rows) const;
  at::Tensor heads_of_keys(const at::Tensor& x) const;

  int64_t values_;  // value heads of a key head
  double scale_;
  at::Tensor q_, k_, v_, strength_;  // q, k: normalised, one for each value head
  at::Tensor q_factor_, k_factor_;   // what normalised them, by key head
  at::Tensor between_, before_, after_, through_;
  at::Tensor key_products_;  // (K K^T) * between, below the diagonal
  at::Tensor system_;        // A
};

// Returns x, [tokens, heads, ...], as [chunks, heads, kDeltaChunk, ...] with zeros behind the last token.
at::Tensor in_chunks(const at::Tensor& x, int64_t chunks);
// Returns [chunks, heads, kDeltaChunk, ...] as [tokens, heads, ...].
at::Tensor in_line(const at::Tensor& x, int64_t tokens);

}  // namespace tessera::ops
