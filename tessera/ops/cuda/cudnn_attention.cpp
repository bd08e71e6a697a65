#include "tessera/ops/cuda/cudnn_attention.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>

#include "tessera/core/error.h"
#include "tessera/core/log.h"
#include "tessera/core/round_up.h"
#include "tessera/device/device_event.h"
#include "tessera/ops/cuda/device_numbers.h"

namespace tessera::ops::cuda {
namespace {

int64_t power_of_two(int64_t size) {
  return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(size)));
}

// Returns the bound, or -1 (unbounded) if no pair of tokens reaches it, so that shapes differ only in what
// matters.
int64_t bound(int64_t distance, int64_t farthest) { return distance < farthest ? distance : -1; }

// Returns x dense and aligned, as kernels read rows 16 bytes at a time.
at::Tensor aligned(const at::Tensor& x) {
  const at::Tensor dense = x.contiguous();
  const auto address = reinterpret_cast<uintptr_t>(dense.const_data_ptr());
  return address % CudnnGraph::kAlignment == 0 ? dense : dense.clone();
}

std::pair<int64_t, void*> place(AttentionMemory what, const at::Tensor& x) {
  return {static_cast<int64_t>(what), const_cast<void*>(x.const_data_ptr())};
}

}  // namespace

AttentionShape attention_shape(const at::Tensor& q, const at::Tensor& k, const VarlenCall& call,
                               double scale) {
  constexpr int64_t kShortest = 64;
  const int64_t longest_query = power_of_two(std::max(call.longest(&SeenSpan::queries), kShortest)),
                longest_key = power_of_two(std::max(call.longest(&SeenSpan::keys), kShortest));
  const int64_t farthest = longest_query + longest_key;
  const int64_t left = bound(call.left, farthest), right = bound(call.right, farthest);
  const bool have_one_length = std::all_of(call.spans.begin(), call.spans.end(),
                                           [](const SeenSpan& span) { return span.queries == span.keys; });
  return {.type = q.scalar_type() == at::kHalf ? dnn::kF16 : dnn::kBF16,
          .documents = power_of_two(std::ssize(call.spans)),
          .longest_query = longest_query,
          .longest_key = longest_key,
          .heads = q.size(1),
          .kv_heads = k.size(1),
          .head_dim = q.size(2),
          .left = left,
          .right = right,
          .is_from_end = !have_one_length && (left >= 0 || right >= 0),
          .scale = static_cast<float>(scale)};
}

CallNumbers call_numbers(const VarlenCall& call, const AttentionShape& shape) {
  constexpr int64_t kWords = CudnnGraph::kAlignment / static_cast<int64_t>(sizeof(int64_t));
  const auto documents = static_cast<size_t>(shape.documents);
  CallNumbers all;
  const auto begin = [&](AttentionMemory what, size_t words) {
    const size_t first = all.words.size();
    all.places.emplace_back(what, first);
    all.words.resize(first + round_up<size_t>(words, kWords));
    return first;
  };
  const auto add_offsets = [&](AttentionMemory what, int64_t SeenSpan::*count, int64_t elements) {
    const std::vector<int32_t> starts = call.starts(count);
    const size_t first = begin(what, documents + 1);
    for (size_t i = 0; i <= documents; ++i)
      all.words[first + i] = starts[std::min(i, starts.size() - 1)] * elements;
  };
  const auto add_lengths = [&](AttentionMemory what, int64_t SeenSpan::*count) {
    const size_t first = begin(what, (documents + 1) / 2);
    std::vector<int32_t> lengths(documents);
    for (size_t i = 0; i < call.spans.size(); ++i) lengths[i] = static_cast<int32_t>(call.spans[i].*count);
    std::memcpy(&all.words[first], lengths.data(), documents * sizeof(int32_t));
  };
  add_offsets(AttentionMemory::QueryOffsets, &SeenSpan::queries, shape.heads * shape.head_dim);
  add_offsets(AttentionMemory::KeyOffsets, &SeenSpan::keys, shape.kv_heads * shape.head_dim);
  add_offsets(AttentionMemory::LogSumOffsets, &SeenSpan::queries, shape.heads);
  add_lengths(AttentionMemory::QueryLengths, &SeenSpan::queries);
  add_lengths(AttentionMemory::KeyLengths, &SeenSpan::keys);
  return all;
}

CudnnGraph* CudnnAttention::find_graph(const GraphKey& key, dnn::Handle handle) {
  if (const auto found = graphs_.find(key); found != graphs_.end()) return found->second.get();
  const auto& [device, is_backward, shape] = key;
  auto made = std::make_unique<CudnnGraph>(library_);
  std::unique_ptr<CudnnGraph>& kept = graphs_[key];  // null if this throws
  is_backward ? add_attention_backward(*made, shape) : add_attention_forward(*made, shape);
  made->build({.handle = handle});
  kept = std::move(made);
  return kept.get();
}

// Enqueues a graph on the current stream; returns false if cuDNN refuses. memory: all but the scratch and the
// numbers of the call, which are added here.
bool CudnnAttention::run(bool is_backward, const at::Tensor& q, const VarlenCall& call,
                         const AttentionShape& shape, Memory memory,
                         const std::vector<AttentionScratch>& scratch) {
  const at::Device device = q.device();
  const GraphKey key = {device.index(), is_backward, shape};
  const CallNumbers numbers = call_numbers(call, shape);
  const at::Tensor numbers_there = device_numbers(numbers.words, device);
  const c10::DeviceGuard device_guard(device);
  const std::lock_guard<std::mutex> lock(mutex_);
  try {
    dnn::Handle& handle = handles_[device.index()];
    if (handle == nullptr && library_.create(&handle) != dnn::kSuccess)
      throw Error(ErrorKind::Internal, "CUDNN", "cudnnCreate failed");
    CudnnGraph* const graph = find_graph(key, handle);
    if (graph == nullptr) return false;

    auto* const first_word = static_cast<int64_t*>(const_cast<void*>(numbers_there.const_data_ptr()));
    for (const auto& [what, word] : numbers.places)
      memory.emplace_back(static_cast<int64_t>(what), first_word + word);
    constexpr int64_t kPiece = 256;
    int64_t bytes = 0;
    std::vector<int64_t> begins;
    for (const AttentionScratch& piece : scratch)
      begins.push_back(std::exchange(bytes, bytes + round_up(piece.bytes, kPiece)));
    const at::Tensor workspace = at::empty({bytes + graph->workspace_bytes()}, q.options().dtype(at::kByte));
    auto* const first_byte = static_cast<char*>(workspace.mutable_data_ptr());
    for (size_t i = 0; i < scratch.size(); ++i)
      memory.emplace_back(static_cast<int64_t>(scratch[i].what), first_byte + begins[i]);

    void* const stream = has_streams(device) ? current_stream(device).native_handle() : nullptr;
    if (library_.set_stream(handle, stream) != dnn::kSuccess)
      throw Error(ErrorKind::Internal, "CUDNN", "cudnnSetStream failed");
    graph->run(handle, memory, first_byte + bytes);
    return true;
  } catch (const Error& error) {
    graphs_[key] = nullptr;
    if (!std::exchange(has_warned_, true)) {
      log::warn(
          std::string(
              "cuDNN cannot compute attention over long documents; flash attention 2 is used instead: ") +
          error.what());
    }
    return false;
  }
}

std::optional<AttentionResult> CudnnAttention::attend(const at::Tensor& q_in, const at::Tensor& k_in,
                                                      const at::Tensor& v_in, const VarlenCall& call,
                                                      double scale) {
  const at::Tensor q = aligned(q_in), k = aligned(k_in), v = aligned(v_in);
  const at::Tensor out = at::empty(q.sizes(), q.options()),
                   log_sum = at::empty({q.size(0), q.size(1)}, q.options().dtype(at::kFloat));
  using enum AttentionMemory;
  const Memory memory = {place(Query, q), place(Key, k), place(Value, v), place(Out, out),
                         place(LogSum, log_sum)};
  if (!run(false, q, call, attention_shape(q, k, call, scale), memory, {})) return std::nullopt;
  return AttentionResult{out, log_sum.t()};
}

std::optional<AttentionGradients> CudnnAttention::differentiate(
    const at::Tensor& grad_out_in, const at::Tensor& q_in, const at::Tensor& k_in, const at::Tensor& v_in,
    const AttentionResult& result, const VarlenCall& call, double scale) {
  const at::Tensor grad_out = aligned(grad_out_in), q = aligned(q_in), k = aligned(k_in), v = aligned(v_in),
                   out = aligned(result.out), log_sum = aligned(result.log_sum.t());
  const AttentionGradients made{at::empty(q.sizes(), q.options()), at::empty(k.sizes(), k.options()),
                                at::empty(v.sizes(), v.options())};
  using enum AttentionMemory;
  const Memory memory = {place(Query, q),          place(Key, k),          place(Value, v),
                         place(Out, out),          place(LogSum, log_sum), place(GradOut, grad_out),
                         place(GradQuery, made.q), place(GradKey, made.k), place(GradValue, made.v)};
  const AttentionShape shape = attention_shape(q, k, call, scale);
  if (!run(true, q, call, shape, memory, backward_scratch(shape, q.size(0), k.size(0)))) return std::nullopt;
  return made;
}

CudnnAttention* cudnn_attention() {
  static CudnnAttention* const kAttention = []() -> CudnnAttention* {
    std::string why_not;
    if (const auto library = CudnnLibrary::open(why_not)) return new CudnnAttention(*library);
    log::warn("cuDNN cannot be opened; flash attention 2 is used for long documents instead: " + why_not);
    return nullptr;
  }();
  return kAttention;
}

}  // namespace tessera::ops::cuda
