#include "tessera/ops/cuda/attention_graph.h"

#include <limits>

#include "tessera/core/round_up.h"

// [Note: graphs of attention] cuDNN knows attention by the operations and the order in which its own frontend
// writes them (github.com/NVIDIA/cudnn-frontend, scaled_dot_product_flash_attention.h), and refuses graphs
// that differ. Hence the products take transposed keys, each mask is two comparisons, and the backward
// multiplies by 1 in the place of a dropout.

namespace tessera::ops::cuda {
namespace {

using Tensor = CudnnGraph::Tensor;

// The tensors of one shape in a graph, its products and its masks.
class Attention {
 public:
  using enum AttentionMemory;

  Attention(CudnnGraph& graph, const AttentionShape& shape)
      : graph_(graph),
        shape_(shape),
        query_offsets_(offsets(QueryOffsets)),
        key_offsets_(offsets(KeyOffsets)),
        log_sum_offsets_(offsets(LogSumOffsets)),
        query_lengths_(lengths(QueryLengths)),
        key_lengths_(lengths(KeyLengths)),
        scale_(graph.scalar(shape.scale)) {}

  Tensor queries(AttentionMemory what) { return queries(what, shape_.type); }
  Tensor queries(AttentionMemory what, dnn::DataType type) {
    return rows(what, type, shape_.longest_query, shape_.heads, shape_.head_dim, query_offsets_);
  }
  Tensor keys(AttentionMemory what, int64_t heads) {
    return rows(what, shape_.type, shape_.longest_key, heads, shape_.head_dim, key_offsets_);
  }
  // Keys or values transposed: [documents, kv_heads, head_dim, tokens].
  Tensor turned_keys(AttentionMemory what) {
    const int64_t width = shape_.kv_heads * shape_.head_dim;
    return graph_.memory(number(what), shape_.type,
                         {shape_.documents, shape_.kv_heads, shape_.head_dim, shape_.longest_key},
                         {width * shape_.longest_key, shape_.head_dim, 1, width}, key_offsets_);
  }
  // One float32 number for each query and head.
  Tensor sums(AttentionMemory what) {
    return rows(what, dnn::kF32, shape_.longest_query, shape_.heads, 1, log_sum_offsets_);
  }

  // Returns scale a b^T.
  Tensor scores(Tensor a, Tensor b_turned) {
    return scaled(graph_.multiply(a, b_turned, query_lengths_, key_lengths_, nullptr));
  }
  Tensor product_of_queries(Tensor a, Tensor b_turned) {
    return graph_.multiply(a, b_turned, query_lengths_, key_lengths_, nullptr);
  }
  void sum_over_keys(Tensor weights, Tensor rows, Tensor y) {
    graph_.multiply(weights, rows, query_lengths_, nullptr, key_lengths_, y);
  }
  void sum_over_queries(Tensor turned_weights, Tensor rows, Tensor y) {
    graph_.multiply(turned_weights, rows, key_lengths_, nullptr, query_lengths_, y);
  }
  // Makes the gradient of keys or values: the shares of the query heads that read one are summed.
  void sum_to_keys(Tensor turned_weights, Tensor rows, AttentionMemory grad, AttentionMemory wide) {
    const Tensor result = keys(grad, shape_.kv_heads);
    if (shape_.heads == shape_.kv_heads) return sum_over_queries(turned_weights, rows, result);
    const Tensor by_head = keys(wide, shape_.heads);
    sum_over_queries(turned_weights, rows, by_head);
    graph_.reduce(dnn::kSum, by_head, result);
  }

  Tensor scaled(Tensor x) { return floats(dnn::kMultiply, x, scale_); }
  Tensor floats(dnn::PointwiseMode mode, Tensor x, Tensor b = nullptr, Tensor y = nullptr) {
    return graph_.pointwise(mode, dnn::kF32, x, b, nullptr, y);
  }
  Tensor narrow_like(Tensor x) { return graph_.virtual_tensor(shape_.type, x->sizes); }
  // Return x transposed, in the type of the products.
  Tensor turned(Tensor x) { return graph_.transposed(x, shape_.type); }
  Tensor turned_back(Tensor keys) { return graph_.transposed(keys, shape_.type, key_offsets_); }

  // Returns the scores, with minus infinity for keys that a query does not see.
  Tensor masked(Tensor scores) {
    const Tensor is_query = compare(dnn::kLess, graph_.index(scores, 2), query_lengths_),
                 is_key = compare(dnn::kLess, graph_.index(scores, 3), key_lengths_);
    scores = kept(scores, compare(dnn::kAnd, is_query, is_key));
    if (shape_.right >= 0) {
      Tensor last = graph_.index(scores, 2);
      const Tensor key = graph_.index(scores, 3);
      if (shape_.is_from_end) {
        last = count(dnn::kSubtract, count(dnn::kAdd, last, key_lengths_), query_lengths_);
      }
      if (shape_.right > 0) last = count(dnn::kAdd, last, whole(shape_.right));
      scores = kept(scores, compare(dnn::kGreaterEqual, last, key));
    }
    if (shape_.left >= 0) {
      const Tensor query = graph_.index(scores, 2);
      Tensor key = graph_.index(scores, 3);
      if (shape_.is_from_end) {
        key = count(dnn::kAdd, key, whole(shape_.left + 1));
        key = count(dnn::kAdd, count(dnn::kSubtract, key, key_lengths_), query_lengths_);
      } else {
        key = floats(dnn::kAdd, key, graph_.scalar(static_cast<float>(shape_.left + 1)));
      }
      scores = kept(scores, compare(dnn::kGreater, key, query));
    }
    return scores;
  }

 private:
  static int64_t number(AttentionMemory what) { return static_cast<int64_t>(what); }
  Tensor offsets(AttentionMemory what) {
    return graph_.memory(number(what), dnn::kI64, {shape_.documents + 1, 1, 1, 1}, {1, 1, 1, 1});
  }
  Tensor lengths(AttentionMemory what) {
    return graph_.memory(number(what), dnn::kI32, {shape_.documents, 1, 1, 1}, {1, 1, 1, 1});
  }
  Tensor rows(AttentionMemory what, dnn::DataType type, int64_t longest, int64_t heads, int64_t width,
              Tensor offsets) {
    return graph_.memory(number(what), type, {shape_.documents, heads, longest, width},
                         {longest * heads * width, width, heads * width, 1}, offsets);
  }
  Tensor whole(int64_t value) { return graph_.scalar(static_cast<int32_t>(value)); }
  Tensor count(dnn::PointwiseMode mode, Tensor x, Tensor b) {
    return graph_.pointwise(mode, dnn::kI32, x, b);
  }
  Tensor compare(dnn::PointwiseMode mode, Tensor x, Tensor b) {
    return graph_.pointwise(mode, dnn::kBool, x, b);
  }
  Tensor kept(Tensor x, Tensor where) {
    return graph_.pointwise(dnn::kSelect, dnn::kF32, x,
                            graph_.scalar(-std::numeric_limits<float>::infinity()), where);
  }

  CudnnGraph& graph_;
  const AttentionShape shape_;
  Tensor query_offsets_, key_offsets_, log_sum_offsets_, query_lengths_, key_lengths_, scale_;
};

}  // namespace

void add_attention_forward(CudnnGraph& graph, const AttentionShape& shape) {
  using enum AttentionMemory;
  Attention with(graph, shape);
  const Tensor scores = with.masked(with.scores(with.queries(Query), with.turned_keys(Key)));
  const Tensor largest = graph.reduce(dnn::kMax, scores);
  const Tensor exps = with.floats(dnn::kExp, with.floats(dnn::kSubtract, scores, largest));
  const Tensor sum = graph.reduce(dnn::kSum, exps);
  with.floats(dnn::kAdd, largest, with.floats(dnn::kLog, sum), with.sums(LogSum));
  const Tensor weights = with.floats(dnn::kDivide, exps, sum, with.narrow_like(exps));
  with.sum_over_keys(weights, with.keys(Value, shape.kv_heads), with.queries(Out));
}

void add_attention_backward(CudnnGraph& graph, const AttentionShape& shape) {
  using enum AttentionMemory;
  Attention with(graph, shape);
  const Tensor query = with.queries(Query), grad_out = with.queries(GradOut);
  const Tensor turned_key = with.turned_keys(Key);
  const Tensor both = with.floats(dnn::kMultiply, grad_out, with.queries(Out));
  const Tensor delta =
      with.floats(dnn::kMultiply, graph.reduce(dnn::kSum, both), graph.scalar(1.0f), with.sums(Delta));
  const Tensor scores =
      with.masked(with.floats(dnn::kSubtract, with.scores(query, turned_key), with.sums(LogSum)));
  const Tensor weights = with.floats(dnn::kExp, scores);
  with.sum_to_keys(with.turned(weights), grad_out, GradValue, WideValue);
  const Tensor grad_weights = with.product_of_queries(grad_out, with.turned_keys(Value));
  const Tensor grad_scores =
      with.scaled(with.floats(dnn::kMultiply, with.floats(dnn::kSubtract, grad_weights, delta), weights));
  with.sum_to_keys(with.turned(grad_scores), query, GradKey, WideKey);
  const Tensor sum_of_query = with.queries(SumOfQuery, dnn::kF32);
  with.sum_over_keys(grad_scores, with.turned_back(turned_key), sum_of_query);
  with.floats(dnn::kIdentity, sum_of_query, nullptr, with.queries(GradQuery));
}

std::vector<AttentionScratch> backward_scratch(const AttentionShape& shape, int64_t queries, int64_t keys) {
  using enum AttentionMemory;
  // Sizes are in whole tiles of tokens. The frontend counts four bytes for an element of the wide tensors
  // too, though theirs are narrower.
  constexpr int64_t kTile = 128, kBytes = 4;
  const int64_t of_queries = round_up(queries, kTile) * shape.heads * kBytes,
                of_keys = round_up(keys, kTile) * shape.heads * shape.head_dim * kBytes;
  std::vector<AttentionScratch> all = {{SumOfQuery, of_queries * shape.head_dim}, {Delta, of_queries}};
  if (shape.heads != shape.kv_heads) {
    all.push_back({WideKey, of_keys});
    all.push_back({WideValue, of_keys});
  }
  return all;
}

}  // namespace tessera::ops::cuda
