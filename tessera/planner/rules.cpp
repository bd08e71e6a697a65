#include "tessera/planner/rules.h"

#include <array>

namespace tessera::planner {
namespace {

constexpr std::array<Rule, 14> kRules = {{
    {"Keep tensor_parallel_size within a node.",
     "It exchanges hidden states ten times a block, and nothing is computed meanwhile: at 50 GB/s of a "
     "network that is nine times "
     "as long as at 450 GB/s of NVLink.",
     "Narayanan et al., 2021 (Megatron-LM); docs/parallelism.md"},
    {"Use zero_stage and dp_shard_size before any other axis, as long as a micro-batch has enough tokens.",
     "A block's parameters are gathered while the block before computes; that hides when a rank's "
     "micro-batch has a few thousand "
     "tokens.",
     "Zhao et al., 2023 (FSDP)"},
    {"Give each rank at least 2,000 to 4,000 tokens in a micro-batch with zero_stage: 3 over a network.",
     "A gather takes 2 bytes a parameter and the compute 6 operations a parameter and token, so tokens "
     "decide which is longer.",
     "the sum of this planner"},
    {"Use dp_replicate_size across nodes and dp_shard_size within them when the states of a node's share "
     "fit.",
     "Only the sums of a rank's own shard cross the network, once a step.", "HSDP; docs/parallelism.md"},
    {"Set zero_hpz_partition_size to the ranks of a node when states must be cut over many nodes.",
     "The backward then gathers within the node, for 2 bytes a parameter over the node's ranks.",
     "Wang et al., 2023 (ZeRO++)"},
    {"Use pipeline_parallel_size across nodes when the network is slow, with at least 4 micro-batches for "
     "each stage.",
     "A rank waits (p - 1) / (m + p - 1) of the step: 20 % at m = 4 p. Only hidden states are sent.",
     "Narayanan et al., 2021"},
    {"Prefer interleaved or zero_bubble when there are few micro-batches.",
     "v stages a rank divide the wait by v, and split backwards fill it; both hold as many or more "
     "activations.",
     "Narayanan et al., 2021; Qi et al., 2024"},
    {"Use context_parallel_size only for documents that are too long for a rank, and ulysses when heads "
     "divide evenly.",
     "It cuts activations, not states; the ring hides behind attention from some 5,000 tokens a rank on a "
     "network of 50 GB/s.",
     "Liu et al., 2023 (ring attention); Jacobs et al., 2023 (Ulysses)"},
    {"Recompute as little as fits: gradient_checkpointing off, then mlp, then true.",
     "mlp costs two of a block's products again; true costs a whole forward, a quarter of the step's time.",
     "Korthikanti et al., 2022"},
    {"Use a larger micro-batch rather than more accumulation, until memory is full.",
     "Products with a small dim leave units idle, and each micro-batch gathers every block again with "
     "zero_stage: 3.",
     "the sum of this planner"},
    {"Keep accumulation high when states lie on the host or a drive.",
     "They move once a step, however many micro-batches that has.",
     "Rajbhandari et al., 2021 (ZeRO-Infinity)"},
    {"Use fp8 for models of 3 billion parameters and more.",
     "Casts and small products take what the faster units give: 1.1 times at 0.5 billion, 1.4 at 7.",
     "LLM.Q, benchmarks/H100x1.md"},
    {"Train adapters when a task is narrow; quantise their base only when memory requires it.",
     "An adapter saves the weight gradients, a third of the products; four bits cost decoding in every pass.",
     "Hu et al., 2021 (LoRA); Dettmers et al., 2023 (QLoRA)"},
    {"Let expert_parallel_size divide the experts within a node first.",
     "Four all-to-alls of every token's copies a block go through the slowest link that the axis has.",
     "Rajbhandari et al., 2022 (DeepSpeed-MoE)"},
}};

}  // namespace

std::span<const Rule> rules() { return kRules; }

}  // namespace tessera::planner
