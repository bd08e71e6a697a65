// The constants of the planner's sums, each with where it comes from. Those marked "fitted" come from
// `plan_rows --fit` over tests/planner/calibration.yaml and from no other row.
#pragma once

#include <string_view>

namespace tessera::planner {

// Share of the peak that products reach whose smallest dim is large.
inline constexpr double kShareA100 = 0.779;  // fitted
inline constexpr double kShareH100 = 0.720;  // fitted
inline constexpr double kShareOther = 0.75;  // the mean of both: nobody fitted these devices

// Smallest dim at which a product reaches half of that share, on a device of 312 TFLOP/s; it grows with the
// rate of the device over that of its memory.
inline constexpr double kHalfDim = 57.0;  // fitted
// Share of the peak that attention reaches, forward and backward together: FlashAttention-2 on A100 (Dao,
// 2023: up to 225 of 312 TFLOP/s; less at 4,096 tokens); on Hopper, cuDNN and FlashAttention-2, as
// benchmarks/RESULTS.md measured them on an H200 (597 and 455, 331 and 271 TFLOP/s).
inline constexpr double kAttention = 0.6, kHopperAttention = 0.5, kHopperFlash2 = 0.29;
// Share of the memory's rate that element-wise kernels reach (performance.md 4.2).
inline constexpr double kMemoryShare = 0.8;
// Share of a link's rate that collectives reach: NCCL's 360 of 450 GB/s between the H100 of a node is "what
// we'd expect" (a maintainer, NVIDIA/nccl-tests issue 326), and some 200 to 230 of 300 of A100 is usual
// (issues 149 and 178), as 85 of 100 GB/s between nodes is (issue 119).
inline constexpr double kLinkShare = 0.8;
// Part of the compute that runs meanwhile by which collectives lengthen it (performance.md 4.2: 0.02 to
// 0.05).
inline constexpr double kContention = 0.03;
// Part of tensor parallelism's messages that hides behind products with async_tensor_parallel (0.4 to 0.7).
inline constexpr double kAsyncHidden = 0.55;
// Seconds that the host takes to start a kernel (performance.md 4.2).
inline constexpr double kLaunchSeconds = 5e-6;
// Seconds of a step in which the device waits for the host: data, metrics, the gradient's norm.
inline constexpr double kStepSeconds = 2e-3;
// Bytes of a process on a GPU that are no tensors: the context and NCCL's buffers (performance.md 4.1).
inline constexpr double kContextGib = 1.2;
// Share of a caching allocator's memory beyond its tensors (performance.md 4.1: 1.03 to 1.10).
inline constexpr double kFragmentation = 1.05;

// How a program computes what lies between the products. `traffic` and `saved` multiply the bytes that fused
// kernels move, and keep for the backward.
struct Software {
  std::string_view name;
  double traffic = 1.0, saved = 1.0;
  double forward_kernels = 0.0, backward_kernels = 0.0;  // of a block; 0 = recorded in graphs
  double logit_bytes = 0.0;      // of each logit at the loss's peak; 0 = the loss goes through them in parts
  double logit_passes = 4.0;     // times that the loss reads or writes each logit
  bool has_flash2 = false;       // attention is FlashAttention-2, on any device
  bool recomputes_down = true;   // the MLP's last product, which no backward reads, with its block
  double gathered_states = 1.5;  // whole hidden states of a block that tensor parallelism keeps at a time
  // Gradients stay whole until the last micro-batch of a pipeline, as FSDP2 keeps them.
  bool sums_whole_gradients = false;
  double gradient_bytes = 4.0;  // of a gradient that is sent
};

// PyTorch as it is, with its blocks under torch.compile, and with its loss there, too; programs with fused
// kernels in recorded graphs (LLM.Q, llm.c); then Tessera, which has fused kernels and starts them one by
// one. A loss that is not compiled has three tensors of logits in float32 at its peak: log-probabilities,
// their gradient and that of the logits. A compiled one has logits and gradients in bfloat16. The inputs of
// attention and of the MLP stay gathered for PyTorch's weight gradients, beside a gradient at each end.
inline constexpr Software kEager = {.name = "eager",
                                    .traffic = 6.65,  // fitted
                                    .saved = 1.43,    // fitted
                                    .forward_kernels = 50,
                                    .backward_kernels = 90,
                                    .logit_bytes = 12.0,
                                    .logit_passes = 15.0,
                                    .has_flash2 = true,
                                    .gathered_states = 4.0,
                                    .sums_whole_gradients = true};
inline constexpr Software kCompiled = {.name = "compiled",
                                       .traffic = 3.03,  // fitted
                                       .saved = 1.19,    // fitted
                                       .forward_kernels = 20,
                                       .backward_kernels = 35,
                                       .logit_bytes = 12.0,
                                       .logit_passes = 15.0,
                                       .has_flash2 = true,
                                       .gathered_states = 4.0,
                                       .sums_whole_gradients = true};
inline constexpr Software kCompiledLoss = [] {
  Software software = kCompiled;
  software.name = "compiled_loss";
  software.logit_bytes = 4.0;
  software.logit_passes = 6.0;
  return software;
}();
inline constexpr Software kKernels = {.name = "kernels", .recomputes_down = false};
inline constexpr Software kTessera = {"tessera", 1.0, 1.0, 16, 30};

}  // namespace tessera::planner
