// Prints the milliseconds of every op, forward and forward + backward, beside the same formula in LibTorch's
// own operations, at the sizes of SmolLM2-135M. Usage: ops_bench [THREADS [NAME-PART [fp32|bf16]]]
// Counts processor time if it runs with one thread: other programs on the machine disturb it less.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <time.h>
#include <torch/csrc/autograd/autograd.h>

#include "tessera/core/cpu_features.h"
#include "tessera/ops/attention.h"
#include "tessera/ops/counter_dropout.h"
#include "tessera/ops/linear.h"
#include "tessera/ops/linear_cross_entropy.h"
#include "tessera/ops/lora.h"
#include "tessera/ops/mlp_activation.h"
#include "tessera/ops/plain.h"
#include "tessera/ops/rms_norm.h"
#include "tessera/ops/rope.h"

namespace {

namespace plain = tessera::ops::plain;
using Inputs = std::vector<at::Tensor>;
using Op = std::function<at::Tensor(const Inputs&)>;

constexpr int64_t kTokens = 1024, kHidden = 576, kFfn = 1536, kHeads = 9, kKvHeads = 3, kHeadDim = 64;
constexpr int64_t kVocabulary = 49152, kRank = 16;

double now_ms() {
  if (at::get_num_threads() > 1) {
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
  }
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) * 1e3 + static_cast<double>(time.tv_nsec) * 1e-6;
}

// Returns the time of the best run among those that fit in about half a second: other programs only ever add
// time.
double best_ms(const std::function<void()>& run) {
  double best = 1e30, total = 0;
  for (int i = 0; i < 200 && (i < 4 || total < 500); ++i) {
    const double start = now_ms();
    run();
    const double ms = now_ms() - start;
    if (i > 0) best = std::min(best, ms);
    total += ms;
  }
  return best;
}

void measure(const char* variant, const Op& op, const Inputs& inputs, double flops) {
  std::vector<at::Tensor> wanted;
  for (const auto& input : inputs) {
    if (input.defined() && input.requires_grad()) wanted.push_back(input);
  }
  const double forward = best_ms([&] {
    at::NoGradGuard no_grad;
    op(inputs);
  });
  std::printf("  %-10s forward %8.3f ms", variant, forward);
  if (!wanted.empty()) {
    const at::Tensor direction = at::ones_like(op(inputs));
    const double both = best_ms([&] { torch::autograd::grad({op(inputs)}, wanted, {direction}); });
    std::printf("   forward + backward %8.3f ms", both);
    if (flops > 0) std::printf("   %6.1f GFLOP/s", flops / both * 1e-6);
  }
  std::printf("\n");
  std::fflush(stdout);
}

std::string wanted_name;

// Compares an op with its formula; `flops` counts the GEMMs of forward and backward (0: not of interest).
void compare(const char* name, const Op& op, const Op& formula, const Inputs& inputs, double flops = 0) {
  if (std::string(name).find(wanted_name) == std::string::npos) return;
  std::printf("%s\n", name);
  measure("tessera", op, inputs, flops);
  if (formula) measure("libtorch", formula, inputs, flops);
}

at::ScalarType element_type = at::kFloat;

at::Tensor random(at::IntArrayRef sizes, bool trained = true, double scale = 1) {
  return (at::randn(sizes) * scale).to(element_type).requires_grad_(trained);
}

void bench_attention(const char* name, const std::vector<int64_t>& starts) {
  const double scale = 0.125;
  compare(
      name,
      [&](const Inputs& in) {
        return tessera::ops::document_attention(in[0], in[1], in[2], starts, {scale});
      },
      [&](const Inputs& in) { return plain::document_attention(in[0], in[1], in[2], starts, {scale}); },
      {random({kTokens, kHeads, kHeadDim}), random({kTokens, kKvHeads, kHeadDim}),
       random({kTokens, kKvHeads, kHeadDim})});
}

void bench_loss(const char* name, bool train_weight, int64_t every) {
  at::Tensor labels = at::randint(kVocabulary, {kTokens}, at::kLong);
  labels.masked_fill_(at::arange(kTokens).remainder(every).ne(0), tessera::kIgnoreLabel);
  compare(
      name, [&](const Inputs& in) { return tessera::ops::linear_cross_entropy(in[0], in[1], labels); },
      [&](const Inputs& in) {
        return at::nll_loss(at::log_softmax(at::linear(in[0], in[1]), -1), labels, {}, at::Reduction::Sum);
      },
      {random({kTokens, kHidden}), random({kVocabulary, kHidden}, train_weight, 0.05)},
      2.0 * kTokens / static_cast<double>(every) * kHidden * kVocabulary * (train_weight ? 3 : 2));
}

}  // namespace

int main(int argc, char** argv) {
  tessera::guard_cpu_features();
  if (argc > 1) at::set_num_threads(std::atoi(argv[1]));
  if (argc > 2) wanted_name = argv[2];
  if (argc > 3 && std::string(argv[3]) == "bf16") element_type = at::kBFloat16;
  at::manual_seed(1);
  std::printf("%ld tokens, hidden %ld, ffn %ld, %s, %d threads\n", kTokens, kHidden, kFfn,
              at::toString(element_type), at::get_num_threads());

  compare(
      "rms_norm", [](const Inputs& in) { return tessera::ops::rms_norm(in[0], in[1], 1e-5); },
      [](const Inputs& in) { return plain::rms_norm(in[0], in[1], 1e-5); },
      {random({kTokens, kHidden}), random({kHidden})});
  const at::Tensor angles = at::randn({kTokens, kHeadDim / 2});
  compare(
      "apply_rope", [](const Inputs& in) { return tessera::ops::apply_rope_(in[0] * 1, in[1], in[2]); },
      [](const Inputs& in) { return plain::apply_rope(in[0], in[1], in[2]); },
      {random({kTokens, kHeads, kHeadDim}), angles.cos(), angles.sin()});
  compare(
      "swiglu",
      [](const Inputs& in) {
        return tessera::ops::activate_mlp(tessera::ops::Nonlinearity::Silu, {in[0], in[1]});
      },
      [](const Inputs& in) { return plain::activate_mlp(tessera::ops::Nonlinearity::Silu, in[0], in[1]); },
      {random({kTokens, kFfn}), random({kTokens, kFfn})});
  bench_attention("attention, 2 documents of 512", {0, 512, 1024});
  bench_attention("attention, 1 document of 1024", {0, 1024});
  const auto uneven = [](int64_t least, int64_t span) {
    std::vector<int64_t> starts = {0};
    for (int64_t i = 0; starts.back() < kTokens; ++i)
      starts.push_back(std::min(kTokens, starts.back() + least + i * 37 % span));
    return starts;
  };
  bench_attention("attention, documents of 100 to 300", uneven(100, 201));
  bench_attention("attention, documents of 20 to 80", uneven(20, 61));
  bench_attention("attention, documents of 1 to 8", uneven(1, 8));

  const double gemm = 2.0 * kTokens * kHidden * kFfn;
  compare(
      "linear, trained", [](const Inputs& in) { return tessera::ops::linear(in[0], in[1]); },
      [](const Inputs& in) { return at::linear(in[0], in[1]); },
      {random({kTokens, kHidden}), random({kFfn, kHidden})}, 3 * gemm);
  compare(
      "linear, frozen", [](const Inputs& in) { return tessera::ops::linear(in[0], in[1]); },
      [](const Inputs& in) { return at::linear(in[0], in[1]); },
      {random({kTokens, kHidden}), random({kFfn, kHidden}, false)}, 2 * gemm);
  const Op plain_lora = [](const Inputs& in) {
    const at::Tensor x = in[4].defined() ? in[0] * in[4] : in[0];
    return at::linear(in[0], in[1]) + 2.0 * at::linear(at::linear(x, in[2]), in[3]);
  };
  const Op lora = [](const Inputs& in) {
    return tessera::ops::lora_linear(in[0], in[1], {}, in[2], in[3], 2.0, in[4]);
  };
  Inputs adapter = {random({kTokens, kHidden}), random({kFfn, kHidden}, false), random({kRank, kHidden}),
                    random({kFfn, kRank}), at::Tensor()};
  compare("lora_linear, frozen base", lora, plain_lora, adapter, 2 * gemm);
  adapter[4] = tessera::ops::dropout_mask({kTokens, kHidden}, 0.1, 1, 2, 3, 0, element_type);
  compare("lora_linear, frozen base, dropout", lora, plain_lora, adapter, 2 * gemm);
  compare(
      "dropout_mask",
      [](const Inputs&) {
        return tessera::ops::dropout_mask({kTokens, kHidden}, 0.1, 1, 2, 3, 0, element_type);
      },
      [](const Inputs&) {
        return at::empty({kTokens, kHidden}).bernoulli_(0.9).div_(0.9);
      },
      {});
  bench_loss("linear_cross_entropy, all labelled, weight trained", true, 1);
  bench_loss("linear_cross_entropy, all labelled, weight frozen", false, 1);
  bench_loss("linear_cross_entropy, every 4th labelled, weight frozen", false, 4);
  return 0;
}
