#include "tessera/planner/memory_use.h"

#include <algorithm>

namespace tessera::planner {
namespace {

constexpr double kGib = 0x1p30;
// Bytes of a weight in blocks of 64 numbers of four bits, with their scales.
constexpr double kFourBits = 0.57;
// Blocks of states on a drive that are in memory at a time: offload_optimizer_buffer_count of 16 MiB.
constexpr double kDriveBuffers = 4.0 * 16.0 * 0x1p20;
// Rows of logits that the fused loss has at a time.
constexpr double kLossRows = 512.0;

double width_of(const Choice& choice) { return choice.precision == Precision::Float32 ? 4.0 : 2.0; }

// Parameters of a rank's stage before data-parallel shards cut them.
struct Counts {
  double base = 0.0, adapters = 0.0, block = 0.0, root = 0.0, blocks = 0.0;
};

Counts counts_of(const ModelWork& work, const Choice& choice) {
  Counts counts;
  const auto tp = static_cast<double>(choice.tp), pp = static_cast<double>(choice.pp);
  counts.blocks = static_cast<double>(work.layers) / pp;
  // Experts are dealt over ep ranks before they are cut.
  double experts = 0.0;
  for (const Matrix& matrix : work.block) {
    if (matrix.is_expert) experts += matrix.parameters();
    counts.adapters += static_cast<double>(choice.adapter_rank) * (matrix.in + matrix.out) * matrix.count *
                       counts.blocks / tp;
  }
  counts.block = (work.block_parameters - experts + experts / static_cast<double>(choice.ep)) / tp;
  const double root = work.embedding_parameters + work.head_parameters;
  counts.root = (choice.pp > 1 ? std::max(work.embedding_parameters, work.head_parameters) : root) / tp;
  counts.base = counts.blocks * counts.block + counts.root;
  return counts;
}

// Bytes that the backward needs of one token and block, as `tessera estimate` finds them: the inputs of both
// norms and of the attention's last product, queries, keys and values, and the MLP's hidden state.
double saved_bytes(const ModelWork& work, const Choice& choice, const Software& software) {
  const auto hidden = static_cast<double>(work.hidden);
  const double width = width_of(choice), mlp = (work.is_gated ? 2 : 1) * work.mlp_width;
  const double all = width * (3 * hidden + work.query_width() + work.kv_width() + mlp) +
                     4.0 * static_cast<double>(work.heads);
  const double whole = all * software.saved;
  switch (choice.recompute) {
    case Recompute::Mlp: return whole - width * mlp;
    case Recompute::Selective: return whole * 0.5 + width * hidden;
    case Recompute::Block:
      return choice.recomputed_blocks * width * hidden + (1.0 - choice.recomputed_blocks) * whole;
    default: return whole;
  }
}

// Elements of the outputs of a block's products, for one token.
double output_width(const ModelWork& work) {
  double width = 0.0;
  for (const Matrix& matrix : work.block) width += matrix.out * matrix.count * matrix.share;
  return width;
}

// Micro-batches of which a rank keeps activations, at most.
double in_flight(const Choice& choice) {
  const auto stages = static_cast<double>(choice.pp), all = static_cast<double>(choice.accumulation);
  if (choice.pp == 1) return 1.0;
  switch (choice.schedule) {
    case PipelineKind::GPipe: return all;
    case PipelineKind::Interleaved:
      return std::min(all, stages + (stages - 1) / static_cast<double>(choice.stages_per_rank));
    default: return std::min(all, stages);
  }
}

// Adds up the memory of a rank, part by part.
class MemorySum {
 public:
  MemorySum(const ModelWork& work, const Job& job, const Choice& choice, const Software& software)
      : work_(work),
        job_(job),
        choice_(choice),
        software_(software),
        counts_(counts_of(work, choice)),
        width_(width_of(choice)),
        of_base_(choice.base == Base::FourBit ? kFourBits : width_),
        tp_(static_cast<double>(choice.tp)),
        shards_(static_cast<double>(choice.shards())),
        trained_(trains_base() ? counts_.base : counts_.adapters) {}

  void add_weights(MemoryUse& use) const {
    // Below stage 3 every rank has the weights that it computes with. Where these are narrower than those
    // that the optimizer updates, only the narrow ones are whole.
    const bool is_narrow = choice_.is_narrow();
    use.weights = trained_ * master() / (choice_.zero >= 3 || is_narrow ? shards_ : 1.0);
    if (!trains_base())
      use.weights += (counts_.blocks * counts_.block * of_base_ + counts_.root * width_) /
                     (choice_.zero >= 3 ? shards_ : 1.0);
    if (choice_.zero >= 3 && choice_.shards() > 1) {
      use.gathered = 2.0 * counts_.block * of_base_ + counts_.root * width_;
    } else if (is_narrow) {
      use.gathered = trained_ * width_;
    }
    if (choice_.base == Base::FourBit) use.gathered += counts_.block * width_;
    if (choice_.hpz > 1)
      use.gathered += counts_.blocks * counts_.block * of_base_ / static_cast<double>(choice_.hpz);
  }

  void add_states(MemoryUse& use) const {
    const double states = trained_ * job_.state_bytes / shards_;
    (choice_.offload == Offload::None         ? use.states
     : choice_.offload == Offload::HostStates ? use.host
                                              : use.drive) = states;
    if (choice_.offload == Offload::DriveStates) use.states = std::min(states, kDriveBuffers);
    use.states += trained_ * tp_ * job_.whole_state_bytes;
  }

  // Adds the activations, the gradients and the loss.
  void add_passes(MemoryUse& use) const {
    const double tokens = static_cast<double>(choice_.micro_batch) * static_cast<double>(job_.sequence) /
                          static_cast<double>(choice_.cp);
    const auto vocab = static_cast<double>(work_.vocab);
    const double kept =
        in_flight(choice_) * counts_.blocks * tokens * saved_bytes(work_, choice_, software_) / tp_;
    // The block that the backward is in. Tensor parallelism gathers hidden states for it.
    const double gathered_states =
        choice_.tp > 1 ? software_.gathered_states * static_cast<double>(work_.hidden) : 0.0;
    const double live =
        tokens * width_ *
        ((choice_.recompute == Recompute::Block ? 6.0 : 3.25) * work_.mlp_width / tp_ + gathered_states);
    use.loss = software_.logit_bytes > 0.0 ? tokens * vocab * software_.logit_bytes / tp_
                                           : 2.0 * std::min(tokens, kLossRows) * vocab * width_ / tp_;
    // Gradients of the block and of the head on their way into the sum.
    const double passing =
        trains_base() ? 4.0 * (counts_.block + vocab * static_cast<double>(work_.hidden) / tp_) : 0.0;
    const bool adds_up = choice_.accumulation > 1 || choice_.pp > 1;
    const bool cuts_sums = choice_.zero > 0 && (!adds_up || choice_.cuts_each_gradient(software_));
    const double sums = choice_.updates_in_backward
                            ? 0.0
                            : trained_ * (adds_up ? master() : width_) / (cuts_sums ? shards_ : 1.0);
    use.activations = live + kept;
    use.gradients = passing + (adds_up ? sums : 0.0);
    if (choice_.pp > 1 && choice_.schedule == PipelineKind::ZeroBubble)
      add_waiting_gradients(use, tokens, live, kept, cuts_sums);
    // In a step of one micro-batch gradients come as activations go.
    if (!adds_up && sums > kept + use.loss) {
      use.activations = live;
      use.gradients = passing + sums;
      use.loss = 0.0;
    }
  }

 private:
  bool trains_base() const { return choice_.adapter_rank == 0; }
  // Bytes of a weight that the optimizer updates.
  double master() const { return choice_.pure_bf16 ? 2.0 : 4.0; }

  // In a zero-bubble schedule weight gradients wait, each with the gradient of its layer's output: one
  // micro-batch's on the first stage, and by then one and a half rounds of them on the last, which keeps no
  // other activations. Until the last of them is there, the sums are whole.
  void add_waiting_gradients(MemoryUse& use, double tokens, double live, double kept, bool cuts_sums) const {
    const auto rounds = 1.5 * static_cast<double>(choice_.pp);
    const double waiting = counts_.blocks * tokens * width_ * output_width(work_) / tp_;
    use.activations = live + std::max(kept + waiting, kept / in_flight(choice_) + rounds * waiting);
    if (trains_base() && cuts_sums) use.gradients += 4.0 * counts_.base * (1.0 - 1.0 / shards_);
  }

  const ModelWork& work_;
  const Job& job_;
  const Choice& choice_;
  const Software& software_;
  Counts counts_;
  double width_, of_base_, tp_, shards_, trained_;
};

}  // namespace

MemoryUse memory_use(const ModelWork& work, const Cluster& cluster, const Job& job, const Choice& choice,
                     const Software& software) {
  const MemorySum sum(work, job, choice, software);
  MemoryUse use;
  sum.add_weights(use);
  sum.add_states(use);
  sum.add_passes(use);
  use.program = cluster.context_gib * kGib + (kFragmentation - 1.0) * use.device();
  return use;
}

bool fits(const MemoryUse& use, const Cluster& cluster) {
  const auto ranks = static_cast<double>(cluster.devices_per_node);
  return use.device() <= cluster.device.memory_gib * kGib &&
         ranks * use.host <= cluster.host_memory_gib * kGib && ranks * use.drive <= cluster.nvme_gib * kGib;
}

}  // namespace tessera::planner
