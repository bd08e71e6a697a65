#include "tessera/planner/step_time.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "tessera/planner/step_parts.h"

namespace tessera::planner {
namespace {

struct TermText {
  std::string_view name, meaning;
};

constexpr std::array<TermText, kNumTerms> kTexts = {{
    {"products",
     "flops of the blocks' matrix products / (peak x share x d / (d + half)), d the smallest dim"},
    {"attention", "4 x heads x head_dim x pairs, forward and 2.5 times that backward / (peak x share)"},
    {"element-wise",
     "bytes of norms, rotations, nonlinearities, casts and gradient sums / (0.8 x memory rate)"},
    {"recomputation", "the forward of what is not kept, once more"},
    {"head and loss", "three products with the vocabulary, and the passes over the logits"},
    {"kernel starts", "where starting kernels (5 us each) takes longer than running them"},
    {"contention", "3 % of the compute beside which collectives run"},
    {"sharding", "gathers and sums of parameters and gradients that do not hide behind a block's compute"},
    {"tensor parallelism", "10 gathers and scatters of hidden states a block; 14 with recomputed blocks"},
    {"context parallelism", "keys and values around the ring beyond attention's time, or the all-to-alls"},
    {"experts", "four all-to-alls of tokens a block"},
    {"stage messages", "hidden states and their gradients between neighbouring stages"},
    {"pipeline wait",
     "(p - 1) / v micro-batches, or less with zero_bubble, and the unevenness of the stages"},
    {"optimizer",
     "states, weights and gradients read and written once / (0.8 x memory rate), or a measured update"},
    {"offload", "states to and from the host or the drive"},
    {"host", "2 ms a step"},
}};

double beyond(double message, double compute) { return std::max(0.0, message - compute); }

// Returns the seconds of a block and micro-batch for which the axis of contexts holds the compute up.
double context_seconds(const StepParts& parts) {
  if (!parts.is_ring) return parts.context_forward.seconds() + parts.context_backward.seconds();
  // The part of a rank's own keys and values needs no message.
  const auto size = static_cast<double>(parts.groups.context.size);
  const double overlap = (size - 1) / size;
  return beyond(parts.context_forward.seconds(), overlap * parts.block.attention) +
         beyond(parts.context_backward.seconds(), overlap * parts.block.attention_backward);
}

// Returns the seconds of a step in which gathers and sums of the data-parallel axes do not hide.
double shard_seconds(const StepParts& parts, const Choice& choice, double blocks) {
  if (parts.groups.shards.size * parts.groups.copies.size == 1) return 0.0;
  const auto micro_batches = static_cast<double>(choice.accumulation);
  const double gather = parts.gather.seconds(), gather_back = parts.gather_back.seconds(),
               scatter = parts.scatter.seconds(), reduce = parts.reduce.seconds();
  const double root_end = parts.root_scatter.seconds() + parts.root_reduce.seconds();
  const double forward = parts.block.forward(),
               backward = parts.block.input_gradient() + parts.block.weight_gradient();

  double seconds = blocks * beyond(reduce, backward) + reduce;
  if (parts.gathers_updates) seconds += blocks * gather;
  if (choice.zero == 1 || choice.zero == 2)
    seconds += parts.scatters * (blocks * beyond(scatter, backward) + scatter);
  if (choice.zero == 3) {
    seconds += micro_batches * (blocks * beyond(gather, forward) + gather +
                                beyond(parts.root_gather.seconds(), forward + parts.head)) +
               parts.scatters * (blocks * beyond(gather_back + scatter, backward) + scatter) +
               (micro_batches - parts.scatters) * blocks * beyond(gather_back, backward);
  }
  return seconds + beyond(root_end, blocks * backward);
}

// Returns the seconds that a pipeline waits: for its first and last micro-batches, and for its slowest stage.
double bubble_seconds(const StepParts& parts, const Choice& choice, double layers, double block_messages) {
  const auto micro_batches = static_cast<double>(choice.accumulation);
  const auto stages = static_cast<double>(choice.pp);
  const double of_block = parts.block.compute() + block_messages + parts.starts();
  const double even = (layers * of_block + parts.head) / stages;
  // Blocks of a stage, dealt by work; the last stage has the head and the rest.
  const double blocks = std::ceil(even / of_block - 1e-9);
  const double last = parts.head + std::max(0.0, layers - (stages - 1) * blocks) * of_block;
  const double slowest = std::max(blocks * of_block, last);
  const double factor =
      pipeline_factor(choice.schedule, stages, static_cast<double>(choice.stages_per_rank), micro_batches,
                      parts.block.forward(), parts.block.input_gradient(), parts.block.weight_gradient());
  return micro_batches * (slowest * factor - even);
}

// Returns the operations of a token and block that are done twice.
double repeated_flops(const ModelWork& work, const Choice& choice, double sequence) {
  double again = 0.0;
  switch (choice.recompute) {
    case Recompute::None: break;
    case Recompute::Mlp:
      for (const Matrix& matrix : work.block) {
        if (matrix.is_into_mlp) again += 2.0 * matrix.parameters() * matrix.share;
      }
      break;
    case Recompute::Selective: again = 0.5 * work.block_flops(); break;
    case Recompute::Block:
      again = choice.recomputed_blocks * (work.block_flops() + work.pair_flops * sequence);
      break;
  }
  return again;
}

}  // namespace

std::string_view term_name(Term term) { return kTexts[static_cast<size_t>(term)].name; }
std::string_view term_meaning(Term term) { return kTexts[static_cast<size_t>(term)].meaning; }

double StepTime::total() const { return std::accumulate(seconds.begin(), seconds.end(), 0.0); }

Term StepTime::limit() const {
  return static_cast<Term>(std::max_element(seconds.begin() + 1, seconds.end()) - seconds.begin());
}

double pipeline_factor(PipelineKind kind, double ranks, double stages_per_rank, double micro_batches,
                       double forward, double input_gradient, double weight_gradient) {
  double waits = ranks - 1.0;
  if (kind == PipelineKind::Interleaved) waits /= stages_per_rank;
  if (kind == PipelineKind::ZeroBubble) {
    const double all = forward + input_gradient + weight_gradient;
    waits *= std::max(0.0, forward + input_gradient - weight_gradient) / all;
  }
  return (micro_batches + waits) / micro_batches;
}

StepTime step_time(const ModelWork& work, const Cluster& cluster, const Job& job, const Choice& choice,
                   const Software& software, const Fitted& fitted) {
  const StepParts parts = step_parts(work, cluster, job, choice, software, fitted);
  const BlockTime& block = parts.block;
  StepTime time;
  const auto micro_batches = static_cast<double>(choice.accumulation);
  const auto stages = static_cast<double>(choice.pp), layers = static_cast<double>(work.layers);
  const double per_step = micro_batches * layers / stages;
  const double tensor = parts.tensor_forward.seconds() + parts.tensor_backward.seconds();
  const double context = context_seconds(parts), experts = 4.0 * parts.expert_exchange.seconds();
  time.of(Term::Products) = per_step * (2.0 * block.products + block.weight_products);
  time.of(Term::Attention) = per_step * (block.attention + block.attention_backward);
  time.of(Term::Elementwise) =
      per_step * (block.elementwise + block.elementwise_backward + block.gradient_sums);
  time.of(Term::Recompute) = per_step * block.recompute;
  time.of(Term::Tensor) = per_step * tensor;
  time.of(Term::Context) = per_step * context;
  time.of(Term::Experts) = per_step * experts;
  time.of(Term::Launches) = per_step * parts.starts();
  time.of(Term::Head) = micro_batches * parts.head / stages;
  time.of(Term::Contention) = parts.contention * per_step * block.compute();
  time.of(Term::Shards) = shard_seconds(parts, choice, layers / stages);
  if (choice.pp > 1) {
    time.of(Term::Bubble) = bubble_seconds(parts, choice, layers, tensor + context + experts);
    time.of(Term::Messages) =
        2.0 * micro_batches * static_cast<double>(choice.stages_per_rank) * parts.stage_message.seconds();
  }
  time.of(Term::Optimizer) = parts.optimizer;
  time.of(Term::Offload) = parts.offload;
  time.of(Term::Host) = parts.host;

  const auto sequence = static_cast<double>(job.sequence);
  time.tokens = static_cast<double>(choice.readers() * choice.micro_batch) * micro_batches * sequence;
  double per_token = work.flops_per_token(sequence);
  if (choice.adapter_rank > 0) per_token -= layers * work.block_flops();
  time.model_flops = time.tokens * per_token;
  time.done_flops = time.model_flops + time.tokens * layers * repeated_flops(work, choice, sequence);
  time.peak_flops = static_cast<double>(choice.ranks()) * cluster.device.tflops(choice.precision) * 1e12;
  return time;
}

}  // namespace tessera::planner
