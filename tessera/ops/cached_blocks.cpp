#include "tessera/ops/cached_blocks.h"

#include <algorithm>

#include <ATen/ATen.h>

#include "tessera/ops/attention.h"
#include "tessera/ops/attention_tasks.h"
#include "tessera/ops/cache_pages.h"

namespace tessera::ops {
namespace {

// Rows of queries of a task: some tasks for each key head of a part of a prompt, so that the threads end
// together.
constexpr int64_t kPartRows = 192;

// The keys and values of one head of a sequence as rows, of which a block at a time is copied out of the
// pages.
template <class T>
class RowsOfPages {
 public:
  RowsOfPages(const std::vector<char*>& pages, const PageShape& shape, int64_t layer, int64_t kv_head,
              bool is_coded)
      : pages_(pages), shape_(shape), layer_(layer), kv_head_(kv_head), is_coded_(is_coded) {}

  // Returns the rows of the tokens [first, first + count) of the sequence.
  KeyRows<T> rows(int64_t first, int64_t count, Buffer<T>& keys, Buffer<T>& values) const {
    const int64_t width = shape_.head_dim, size = kBlockKeys * width;
    T *k = keys.of_size(size + shape_.block()), *v = values.of_size(size);
    T* const columns = k + size;  // a page's keys before they are turned
    for (int64_t done = 0; done < count;) {
      const int64_t token = first + done, slot = token % kCachePageTokens,
                    taken = std::min(kCachePageTokens - slot, count - done);
      copy(pages_[static_cast<size_t>(token / kCachePageTokens)], slot, taken, k + done * width,
           v + done * width, columns);
      done += taken;
    }
    return {{k, width}, {v, width}};
  }

 private:
  void copy(char* page, int64_t slot, int64_t count, T* k, T* v, T* columns) const {
    const int64_t width = shape_.head_dim;
    if (page == nullptr) {
      // Nothing sees these tokens, but their products are made.
      std::fill_n(k, count * width, T{});
      std::fill_n(v, count * width, T{});
      return;
    }
    const T* from = columns;
    if (is_coded_) {
      const CodedPageHead own = shape_.coded_head(page, layer_, kv_head_);
      kernels::decode_columns(own.keys, own.key_scales, width, columns);
      kernels::decode_rows_of(own.values + slot * width, own.value_scales + slot, count, width, v);
    } else {
      const PageHead<T> own = shape_.head<T>(page, layer_, kv_head_);
      from = own.keys;
      std::copy_n(own.values + slot * width, count * width, v);
    }
    for (int64_t i = 0; i < width; ++i) {
      const T* column = from + i * kCachePageTokens + slot;
      for (int64_t j = 0; j < count; ++j) k[j * width + i] = column[j];
    }
  }

  const std::vector<char*>& pages_;
  PageShape shape_;
  int64_t layer_, kv_head_;
  bool is_coded_;
};

template <class T>
struct Worker : ForwardWorker<T> {
  Buffer<T> keys, values;
};

// A task, and the pages of its sequence.
struct PagedTask {
  ForwardTask task;
  const std::vector<char*>* pages;
};

std::vector<PagedTask> paged_tasks(const CachedBatch& batch, const std::vector<std::vector<char*>>& memory,
                                   int64_t group, const AttentionFormula& formula) {
  std::vector<PagedTask> tasks;
  for (size_t s = 0; s < memory.size(); ++s) {
    const CachedSequence& sequence = batch.sequences[s];
    if (sequence.added < kManyNewTokens) continue;
    // Tokens of the sequence count as its keys.
    const AttentionSpan span{sequence.first, sequence.added, 0, sequence.length,
                             sequence.length - sequence.added};
    for (const ForwardTask& task :
         forward_tasks(seen_spans({span}, formula), batch.num_kv_heads, group, kPartRows))
      tasks.push_back({task, &memory[s]});
  }
  return tasks;
}

}  // namespace

void attend_in_blocks(const at::Tensor& q, const CachedBatch& batch,
                      const std::vector<std::vector<char*>>& memory, int64_t layer,
                      const AttentionFormula& formula, const at::Tensor& out) {
  const PageShape shape{batch.num_kv_heads, batch.head_dim};
  const std::vector<PagedTask> tasks = paged_tasks(batch, memory, q.size(1) / batch.num_kv_heads, formula);
  if (tasks.empty()) return;
  const at::Tensor log_sum =
      at::empty({q.size(0), q.size(1), 1}, q.options().dtype(compute_type(q.scalar_type())));
  dispatch(q.scalar_type(), [&](auto tag) {
    using T = decltype(tag);
    const ForwardTensors tensors{q, out, log_sum, formula.dropout};
    for_each_task(
        static_cast<int64_t>(tasks.size()),
        [&] {
          // The kind of blocks must not depend on the other sequences.
          Worker<T> worker;
          worker.blocks =
              make_forward_blocks<T>(shape.head_dim, {formula.scale, formula.soft_cap}, kManyNewTokens);
          return worker;
        },
        [&](Worker<T>& worker, int64_t i) {
          const auto& [task, pages] = tasks[static_cast<size_t>(i)];
          const RowsOfPages<T> rows(*pages, shape, layer, task.kv_head, batch.dtype == kCodedCache);
          attend<T>(worker, tensors, task, [&](int64_t first, int64_t count) {
            return rows.rows(task.span.first_key + first, count, worker.keys, worker.values);
          });
        });
  });
  if (!formula.sinks.defined()) return;
  for (const CachedSequence& sequence : batch.sequences) {
    if (sequence.added < kManyNewTokens) continue;
    add_sinks(
        {out.narrow(0, sequence.first, sequence.added), log_sum.narrow(0, sequence.first, sequence.added)},
        formula);
  }
}

}  // namespace tessera::ops
