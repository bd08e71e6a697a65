// The tasks in which the host's attention runs, and the forward of one.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <type_traits>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>

#include "tessera/core/round_up.h"
#include "tessera/ops/attention_blocks.h"
#include "tessera/ops/kernels/gemm.h"
#include "tessera/ops/seen_spans.h"
#include "tessera/ops/support.h"

namespace tessera::ops {

// Rows of queries, over all heads of a forward task: enough to be worth the packing of the keys, which every
// task does for itself.
inline constexpr int64_t kTaskRows = 768, kMaxTaskHeads = 8;

// Returns one head of a [tokens, heads, head_dim] tensor, from `first_token` on.
template <class T>
HeadRows<T> head_rows(const at::Tensor& tensor, int64_t first_token, int64_t head) {
  T* data = const_cast<T*>(read<std::remove_const_t<T>>(tensor));
  // The stride of a tensor with a single row is arbitrary.
  return {data + first_token * tensor.stride(0) + head * tensor.stride(1),
          std::max(tensor.stride(0), tensor.size(2))};
}

// Runs run(worker, task) for every task. A thread takes the next task when it is done with one, in the order
// of their numbers, so costly tasks should come first. Each thread makes a worker, with its own scratch
// memory and tile units.
template <class Make, class Run>
void for_each_task(int64_t num_tasks, const Make& make_worker, const Run& run) {
  std::atomic<int64_t> next{0};
  const int64_t num_workers = std::min<int64_t>(at::get_num_threads(), num_tasks);
  at::parallel_for(0, num_workers, 1, [&](int64_t begin, int64_t end) {
    const kernels::GemmOnThisThread alone;
    for (int64_t i = begin; i < end; ++i) {
      auto worker = make_worker();
      for (int64_t task = next++; task < num_tasks; task = next++) run(worker, task);
    }
  });
}

// See [Note: tasks of attention] in attention.cpp.
struct ForwardTask {
  SeenSpan span;
  int64_t first, rows;         // queries of the span: [first, first + rows)
  int64_t kv_head, head, end;  // query heads [head, end)
};

// Cuts the spans into tasks of about `task_rows` rows, sorted by falling cost. group: query heads for each
// key head.
inline std::vector<ForwardTask> forward_tasks(const std::vector<SeenSpan>& spans, int64_t kv_heads,
                                              int64_t group, int64_t task_rows = kTaskRows) {
  const int64_t parts = (group + kMaxTaskHeads - 1) / kMaxTaskHeads, heads = (group + parts - 1) / parts;
  const int64_t rows = round_up<int64_t>(task_rows / heads, 64);
  std::vector<ForwardTask> tasks;
  for (const SeenSpan& span : spans) {
    for (int64_t first = 0; first < span.queries; first += rows) {
      for (int64_t kv_head = 0; kv_head < kv_heads; ++kv_head) {
        for (int64_t head = 0; head < group; head += heads) {
          tasks.push_back({span, first, std::min(rows, span.queries - first), kv_head, kv_head * group + head,
                           kv_head * group + std::min(head + heads, group)});
        }
      }
    }
  }
  const auto work = [](const ForwardTask& task) {
    return task.rows * task.span.band.from(task.first, 0).keys_seen(task.rows).size();
  };
  std::stable_sort(tasks.begin(), tasks.end(),
                   [&](const ForwardTask& a, const ForwardTask& b) { return work(a) > work(b); });
  return tasks;
}

// Returns what dropout does to one head of a span.
kernels::PairDropout pair_dropout(const AttentionDropout& dropout, const SeenSpan& span, int64_t head);

// q and out: [tokens, heads, head_dim]; log_sum: [tokens, heads, 1].
struct ForwardTensors {
  const at::Tensor &q, &out, &log_sum;
  const AttentionDropout& dropout;
};

// Keys and values, one after the other.
template <class T>
struct KeyRows {
  HeadRows<const T> k, v;
};

template <class T>
struct ForwardWorker {
  std::unique_ptr<ForwardBlocks<T>> blocks;
  Buffer<kernels::ComputeType<T>> states;
};

// Does a task. keys(first, count) returns keys [first, first + count) of the span and their values, which
// must stay there until its next call.
template <class T, class Keys>
void attend(ForwardWorker<T>& worker, const ForwardTensors& tensors, const ForwardTask& task,
            const Keys& keys) {
  using C = kernels::ComputeType<T>;
  ForwardBlocks<T>& blocks = *worker.blocks;
  const SeenSpan& span = task.span;
  const int64_t end = task.first + task.rows, size = blocks.max_queries();
  const int64_t per_head = (task.rows + size - 1) / size;
  const kernels::IndexRange seen = span.band.from(task.first, 0).keys_seen(task.rows);
  // Blocks of keys begin on multiples of `size`, so that diagonals of the band stay diagonals of panels.
  const int64_t first_key = seen.begin / size * size;
  // Queries that meet a single block of keys need their state for a moment only, and all take turns in one.
  const bool keeps_states = seen.end > first_key + kBlockKeys;
  C* states =
      worker.states.of_size(blocks.state_size() * (keeps_states ? per_head * (task.end - task.head) : 1));
  for (int64_t key = first_key; key < seen.end; key += kBlockKeys) {
    const int64_t count = std::min(kBlockKeys, seen.end - key);
    const KeyRows<T> own = keys(key, count);
    blocks.set_keys(own.k, own.v, count);
    for (int64_t head = task.head; head < task.end; ++head) {
      const auto q = head_rows<const T>(tensors.q, span.first_query, head);
      const auto out = head_rows<T>(tensors.out, span.first_query, head);
      const auto log_sum = head_rows<C>(tensors.log_sum, span.first_query, head);
      const kernels::PairDropout dropout = pair_dropout(tensors.dropout, span, head);
      for (int64_t i = 0; i < per_head; ++i) {
        const int64_t first = task.first + i * size, rows = std::min(size, end - first);
        const auto [own_first, own_end] = span.band.from(first, 0).keys_seen(rows);
        // Blocks of keys come in rising order: the first one that holds a key which these queries see starts
        // their state, and the one that holds the last such key finishes it.
        if (own_end <= key || own_first >= key + kBlockKeys) continue;
        C* state = states + (keeps_states ? (head - task.head) * per_head + i : 0) * blocks.state_size();
        blocks.attend(q.from(first), rows, span.band.from(first, key), dropout.from(first, key),
                      own_first >= key, state);
        if (own_end <= key + kBlockKeys) blocks.finish(state, rows, out.from(first), log_sum.from(first));
      }
    }
  }
}

}  // namespace tessera::ops
