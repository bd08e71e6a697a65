#include "tessera/ops/gated_delta_rule.h"

#include <algorithm>
#include <cmath>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/custom_function.h>

#include "tessera/core/check_argument.h"
#include "tessera/core/trace.h"
#include "tessera/device/host_memory.h"
#include "tessera/ops/delta_chunks.h"
#include "tessera/ops/delta_step.h"
#include "tessera/ops/saved_activation.h"
#include "tessera/ops/support.h"

namespace tessera::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr const char* kName = "gated_delta_rule";

// A task works on few tokens at a time, and on the processor on few value heads, so that its matrices stay in
// the cache.
constexpr int64_t kTaskHeads = 4, kTaskChunks = 16;

// Key heads and chunks that are worked on at once.
struct Task {
  int64_t first_head = 0, heads = 0, values = 0;  // key heads, and value heads of each
  int64_t first_chunk = 0, chunks = 0, first_token = 0, tokens = 0;

  at::Tensor of_keys(const at::Tensor& x) const {
    return x.narrow(0, first_token, tokens).narrow(1, first_head, heads);
  }
  at::Tensor of_values(const at::Tensor& x) const {
    return x.narrow(0, first_token, tokens).narrow(1, first_head * values, heads * values);
  }
  DeltaInputs of(const DeltaInputs& all) const {
    return {of_keys(all.rows), of_values(all.log_decay), of_values(all.strength)};
  }
  at::Tensor of_memories(const at::Tensor& all) const {
    return all.narrow(0, first_chunk, chunks).narrow(1, first_head * values, heads * values);
  }
};

// Calls f with the tasks of each group of heads, in the order of the tokens. On the host, several threads
// take the groups. On the meta device, and without tokens, there is nothing to do.
template <class F>
void for_groups(const DeltaInputs& inputs, int64_t chunks, const F& f) {
  const int64_t tokens = inputs.rows.size(0), key_heads = inputs.rows.size(1),
                values = inputs.log_decay.size(1) / key_heads;
  const int64_t heads = is_on_host(inputs.rows) ? std::max<int64_t>(1, kTaskHeads / values) : key_heads;
  if (inputs.rows.is_meta() || chunks == 0) return;
  at::parallel_for(0, (key_heads + heads - 1) / heads, 1, [&](int64_t begin, int64_t end) {
    const at::NoGradGuard no_grad;
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    for (int64_t group = begin; group < end; ++group) {
      std::vector<Task> tasks;
      for (int64_t chunk = 0; chunk < chunks; chunk += kTaskChunks) {
        Task task{group * heads, std::min(heads, key_heads - group * heads), values};
        task.first_chunk = chunk;
        task.chunks = std::min(kTaskChunks, chunks - chunk);
        task.first_token = chunk * kDeltaChunk;
        task.tokens = std::min(task.chunks * kDeltaChunk, tokens - task.first_token);
        tasks.push_back(task);
      }
      f(tasks);
    }
  });
}

struct Forward {
  at::Tensor out, memories, last;  // memories before the chunks, and after the last token
};

// `memory`: undefined, or that of the first document before the line, [value heads, key_dim, value_dim].
Forward forward_pass(const DeltaInputs& in, const DeltaHead& head, const std::vector<int64_t>& starts,
                     const at::Tensor& memory = {}) {
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  const ChunkMarks marks = chunk_marks(starts, memory.defined(), in.rows.device());
  const int64_t tokens = in.rows.size(0), heads = in.log_decay.size(1);
  const at::TensorOptions options = in.rows.options().requires_grad(false),
                          exact_options = options.dtype(compute_type(in.rows.scalar_type()));
  Forward made{at::empty({tokens, heads, head.value_dim}, options),
               at::empty({marks.chunks(), heads, head.key_dim, head.value_dim}, exact_options),
               at::empty({heads, head.key_dim, head.value_dim}, exact_options)};
  for_groups(in, marks.chunks(), [&](const std::vector<Task>& tasks) {
    const Task& any = tasks.front();
    const auto of_heads = [&](const at::Tensor& x) {
      return x.narrow(0, any.first_head * any.values, any.heads * any.values);
    };
    at::Tensor own = memory.defined() ? of_heads(memory) : at::zeros_like(of_heads(made.last));
    for (const Task& task : tasks) {
      const DeltaChunks chunks(task.of(in), head, marks.narrow(task.first_chunk, task.chunks));
      const at::Tensor out = chunks.forward(own, task.of_memories(made.memories));
      task.of_values(made.out).copy_(in_line(out, task.tokens));
    }
    of_heads(made.last).copy_(own);
  });
  return made;
}

DeltaInputs backward_pass(const at::Tensor& grad, const DeltaInputs& in, const DeltaHead& head,
                          const at::Tensor& memories, const std::vector<int64_t>& starts) {
  const ChunkMarks marks = chunk_marks(starts, false, in.rows.device());
  const auto like = [](const at::Tensor& x) {
    return at::empty(x.sizes(), x.options().requires_grad(false));
  };
  const DeltaInputs made{like(in.rows), like(in.log_decay), like(in.strength)};
  for_groups(in, marks.chunks(), [&](std::vector<Task> tasks) {
    std::ranges::reverse(tasks);
    at::Tensor grad_memory = at::zeros_like(tasks.front().of_memories(memories)[0]);
    for (const Task& task : tasks) {
      const DeltaChunks chunks(task.of(in), head, marks.narrow(task.first_chunk, task.chunks));
      const at::Tensor own = in_chunks(task.of_values(grad), task.chunks).to(memories.scalar_type());
      const DeltaChunks::Gradients gradients =
          chunks.backward(own.contiguous(), task.of_memories(memories), grad_memory);
      const at::Tensor rows = task.of_keys(made.rows);
      rows.narrow(2, 0, head.key_dim).copy_(in_line(gradients.q, task.tokens));
      rows.narrow(2, head.key_dim, head.key_dim).copy_(in_line(gradients.k, task.tokens));
      rows.narrow(2, 2 * head.key_dim, task.values * head.value_dim)
          .unflatten(2, {task.values, head.value_dim})
          .copy_(in_line(gradients.v, task.tokens).unflatten(1, {task.heads, task.values}));
      task.of_values(made.log_decay).copy_(in_line(gradients.log_decay, task.tokens));
      task.of_values(made.strength).copy_(in_line(gradients.strength, task.tokens));
    }
  });
  return made;
}

struct DeltaFunction : torch::autograd::Function<DeltaFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& rows, const at::Tensor& log_decay,
                            const at::Tensor& strength, const DeltaHead& head,
                            const std::vector<int64_t>& starts) {
    const Forward made = forward_pass({rows, log_decay, strength}, head, starts);
    save_activations(*ctx, {rows, log_decay, strength, made.memories});
    ctx->saved_data["key_dim"] = head.key_dim;
    ctx->saved_data["value_dim"] = head.value_dim;
    ctx->saved_data["starts"] = starts;
    return made.out;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    refuse_double_backward(kName);
    const auto saved = take_activations(*ctx);
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    const DeltaInputs gradients =
        backward_pass(grads[0], {saved[0], saved[1], saved[2]},
                      {ctx->saved_data["key_dim"].toInt(), ctx->saved_data["value_dim"].toInt()}, saved[3],
                      ctx->saved_data["starts"].toIntVector());
    return {gradients.rows, gradients.log_decay, gradients.strength, {}, {}};
  }
};

void check_inputs(const DeltaInputs& in, const DeltaHead& head, const std::vector<int64_t>& starts) {
  check_operands(kName, {&in.rows, &in.log_decay, &in.strength});
  const bool has_dims =
      in.rows.dim() == 3 && in.log_decay.dim() == 2 && head.key_dim > 0 && head.value_dim > 0;
  TESSERA_CHECK_ARGUMENT(
      has_dims && in.rows.size(1) > 0 && in.log_decay.size(0) == in.rows.size(0) &&
          in.log_decay.sizes() == in.strength.sizes() && in.log_decay.size(1) % in.rows.size(1) == 0 &&
          in.rows.size(1) * (in.rows.size(2) - 2 * head.key_dim) == in.log_decay.size(1) * head.value_dim &&
          !starts.empty() && starts.front() == 0 && starts.back() == in.rows.size(0),
      "gated_delta_rule: shapes");
}

}  // namespace

at::Tensor gated_delta_rule(const DeltaInputs& in, const DeltaHead& head,
                            const std::vector<int64_t>& document_starts) {
  const trace::Scope trace_scope(kName);
  check_inputs(in, head, document_starts);
  if (!needs_graph({in.rows, in.log_decay, in.strength})) return forward_pass(in, head, document_starts).out;
  return DeltaFunction::apply(in.rows, in.log_decay, in.strength, head, document_starts);
}

std::pair<at::Tensor, at::Tensor> continue_delta_rule(const DeltaInputs& in, const DeltaHead& head,
                                                      const std::vector<int64_t>& document_starts,
                                                      const at::Tensor& memory) {
  const trace::Scope trace_scope(kName);
  check_inputs(in, head, document_starts);
  const int64_t tokens = in.rows.size(0), documents = std::ssize(document_starts) - 1;
  TESSERA_CHECK_ARGUMENT(memory.dim() == 4 && memory.size(0) == documents &&
                             memory.size(1) == in.log_decay.size(1) && memory.size(2) == head.key_dim &&
                             memory.size(3) == head.value_dim,
                         "continue_delta_rule: shape of the memory");
  for (size_t i = 1; i < document_starts.size(); ++i) {
    TESSERA_CHECK_ARGUMENT(document_starts[i] > document_starts[i - 1],
                           "continue_delta_rule: a document without a token");
  }
  if (tokens == documents) return delta_step(in, head, memory);
  const at::Tensor out = at::empty({tokens, in.log_decay.size(1), head.value_dim}, in.rows.options());
  const at::Tensor after = at::empty_like(memory);
  for (int64_t i = 0; i < documents; ++i) {
    const int64_t first = document_starts[static_cast<size_t>(i)],
                  count = document_starts[static_cast<size_t>(i) + 1] - first;
    const auto own = [&](const at::Tensor& x) { return x.narrow(0, first, count); };
    const Forward made =
        forward_pass({own(in.rows), own(in.log_decay), own(in.strength)}, head, {0, count}, memory[i]);
    own(out).copy_(made.out);
    after[i].copy_(made.last);
  }
  return {out, after};
}

}  // namespace tessera::ops
