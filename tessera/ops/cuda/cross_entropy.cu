// The losses of rows of logits, and their gradients in place.
#include "tessera/ops/cuda/entries.cuh"
#include "tessera/ops/cuda/reduce.cuh"

namespace tessera::ops::cuda {
namespace {

constexpr int kMaxThreads = 512;

struct Larger {
  __device__ float operator()(float a, float b) const { return a > b ? a : b; }
};

template <class T>
struct Arguments {
  T* logits;
  const int64_t* labels;
  float* sums_out;       // null: losses, and gradients if wanted, are made
  const float* sums_in;  // null: the sums are made from the row
  double* losses;
  int64_t rows, width, first_token, ignore_label;
  double smoothing, of_token, z_coef;
  bool writes_gradient;
};

// The sums that a row's loss is made of: the logarithm of the sum of exponentials, the label's logit, and the
// sum of all logits.
struct RowSums {
  float log_sum, target, total;
};

// Calls f(column, values) with every element of a row once, in accesses of 16 bytes except at its ends; with
// is_backward, the row's last elements come first, which the read before has left in the cache.
template <class T, class F>
__device__ void for_row(const T* row, int64_t width, bool is_backward, const F& f) {
  constexpr int N = kVector<T>;
  const int64_t to_aligned = (16 - reinterpret_cast<uintptr_t>(row) % 16) % 16 / sizeof(T);
  const int64_t head = to_aligned < width ? to_aligned : width, vectors = (width - head) / N;
  const int64_t tail = head + vectors * N, ends = head + (width - tail);
  const auto place = [&](int64_t v) { return head + (is_backward ? vectors - 1 - v : v) * N; };
  // Each thread has two accesses on their way at a time.
  const int64_t stride = blockDim.x;
  int64_t v = threadIdx.x;
  for (; v + stride < vectors; v += 2 * stride) {
    const Packed<T, N> first = load_packed<N>(row + place(v)),
                       second = load_packed<N>(row + place(v + stride));
    f(place(v), unpack(first));
    f(place(v + stride), unpack(second));
  }
  if (v < vectors) f(place(v), load<N>(row + place(v)));
  for (int64_t i = threadIdx.x; i < ends; i += stride) {
    const int64_t column = i < head ? i : tail + (i - head);
    f(column, load<1>(row + column));
  }
}

// The running sum is kept relative to the running maximum and rescaled when the maximum grows.
struct RunningSum {
  float largest = -INFINITY, sum = 0.0f;
  double total = 0.0;

  template <int N>
  __device__ void add(const Floats<N>& x, bool wants_total) {
    float top = x.v[0];
#pragma unroll
    for (int i = 1; i < N; ++i) top = Larger()(x.v[i], top);
    if (top > largest) {
      sum *= expf(largest - top);
      largest = top;
    }
    // If all logits so far are -infinity, 0 is subtracted, so that exp() gives 0 for -infinity and NaN for
    // NaN.
    const float shift = largest == -INFINITY ? 0.0f : largest;
#pragma unroll
    for (int i = 0; i < N; ++i) sum += expf(x.v[i] - shift);
    if (!wants_total) return;
#pragma unroll
    for (int i = 0; i < N; ++i) total += static_cast<double>(x.v[i]);
  }
};

template <class T>
__device__ void write_gradient(const Arguments<T>& a, T* row, int64_t target, const RowSums& sums) {
  const float slope = static_cast<float>(2.0 * a.z_coef * static_cast<double>(sums.log_sum));
  const float factor = 1.0f + slope, of_token = static_cast<float>(a.of_token);
  // expm1 keeps the label's gradient exact if its probability is near 1.
  const float of_target = expm1f(sums.target - sums.log_sum) + slope * expf(sums.target - sums.log_sum) -
                          of_token + static_cast<float>(a.smoothing);
  for_row(row, a.width, true, [&](int64_t column, auto x) {
    constexpr int N = static_cast<int>(sizeof x / sizeof(float));
#pragma unroll
    for (int i = 0; i < N; ++i) x.v[i] = fmaf(expf(x.v[i] - sums.log_sum), factor, -of_token);
    store(row + column, x);
  });
  // The label's element is written again, by one thread, after all have written theirs.
  __syncthreads();
  if (threadIdx.x == 0 && target >= 0) narrow(of_target, row[target]);
}

template <class T>
__global__ void __launch_bounds__(kMaxThreads, 2) rows_of_logits(Arguments<T> a) {
  TESSERA_SHARED(float, slots, 2 * kWarp);
  TESSERA_SHARED(double, wide_slots, 2 * kWarp);
  RowReduce<float> reduce(slots, static_cast<int>(blockDim.x));
  RowReduce<double> wide_reduce(wide_slots, static_cast<int>(blockDim.x));
  const bool wants_total = a.smoothing > 0.0 || a.sums_out != nullptr;
  for (int64_t index = blockIdx.x; index < a.rows; index += gridDim.x) {
    T* row = a.logits + index * a.width;
    const int64_t label = a.labels[index], place = label - a.first_token;
    const bool is_ignored = label == a.ignore_label;
    const int64_t target = place >= 0 && place < a.width ? place : -1;
    RowSums sums = {0.0f, 0.0f, 0.0f};
    if (a.sums_in != nullptr) {
      sums = {a.sums_in[index], a.sums_in[a.rows + index], a.sums_in[2 * a.rows + index]};
    } else if (!is_ignored) {
      if (target >= 0) sums.target = widen(row[target]);
      RunningSum running;
      for_row(row, a.width, false, [&](int64_t, const auto& x) { running.add(x, wants_total); });
      const float largest = reduce(running.largest, -INFINITY, Larger());
      const float shift = largest == -INFINITY ? 0.0f : largest;
      sums.log_sum = largest + logf(reduce.sum(running.sum * expf(running.largest - shift)));
      if (wants_total) sums.total = static_cast<float>(wide_reduce.sum(running.total));
    }
    if (a.sums_out != nullptr) {
      if (threadIdx.x != 0) continue;
      a.sums_out[index] = sums.log_sum;
      a.sums_out[a.rows + index] = sums.target;
      a.sums_out[2 * a.rows + index] = sums.total;
      continue;
    }
    if (threadIdx.x == 0) {
      const double log_sum = sums.log_sum, of_target = sums.target;
      double loss = log_sum - of_target;
      if (a.smoothing > 0.0) loss += a.smoothing * of_target - a.of_token * static_cast<double>(sums.total);
      if (a.z_coef > 0.0) loss += a.z_coef * log_sum * log_sum;
      a.losses[index] = is_ignored ? 0.0 : loss;
    }
    if (!a.writes_gradient) continue;
    // The row is overwritten only after all threads have read the label's logit.
    __syncthreads();
    if (is_ignored) {
      T zero;
      narrow(0.0f, zero);
      for (int64_t column = threadIdx.x; column < a.width; column += blockDim.x) row[column] = zero;
    } else {
      write_gradient(a, row, target, sums);
    }
  }
}

int32_t run(Type type, const void* logits, const int64_t* labels, float* sums_out, const float* sums_in,
            double* losses, int64_t rows, int64_t width, const LossOptions& options, bool writes_gradient,
            void* stream) {
  const double smoothing = options.label_smoothing;
  const double of_token = smoothing > 0.0 ? smoothing / static_cast<double>(options.vocab_size) : 0.0;
  return dispatch(type, [&](auto tag) {
    using T = decltype(tag);
    const Arguments<T> a = {const_cast<T*>(static_cast<const T*>(logits)),
                            labels,
                            sums_out,
                            sums_in,
                            losses,
                            rows,
                            width,
                            options.first_token,
                            options.ignore_label,
                            smoothing,
                            of_token,
                            options.z_loss_coef,
                            writes_gradient};
    return launch(rows_of_logits<T>, rows, block_threads(width / kVector<T>, 2, kMaxThreads), stream, a);
  });
}

}  // namespace

int32_t cross_entropy(Type type, void* logits, const int64_t* labels, double* losses, int64_t rows,
                      int64_t width, const LossOptions* options, int32_t writes_gradient, void* stream) {
  return run(type, logits, labels, nullptr, nullptr, losses, rows, width, *options, writes_gradient != 0,
             stream);
}

int32_t cross_entropy_sums(Type type, const void* logits, const int64_t* labels, float* sums, int64_t rows,
                           int64_t width, const LossOptions* options, void* stream) {
  return run(type, logits, labels, sums, nullptr, nullptr, rows, width, *options, false, stream);
}

int32_t cross_entropy_finish(Type type, void* logits, const int64_t* labels, const float* sums,
                             double* losses, int64_t rows, int64_t width, const LossOptions* options,
                             int32_t writes_gradient, void* stream) {
  return run(type, logits, labels, nullptr, sums, losses, rows, width, *options, writes_gradient != 0,
             stream);
}

}  // namespace tessera::ops::cuda
