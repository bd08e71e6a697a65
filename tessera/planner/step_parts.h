// The parts of which a training step consists on one rank: seconds of compute, and messages by axis. Every
// time of the planner is made of them, by a sum (step_time.h) or by a simulation (simulation/).
#pragma once

#include "tessera/planner/choice.h"
#include "tessera/planner/cluster.h"
#include "tessera/planner/constants.h"
#include "tessera/planner/links.h"
#include "tessera/planner/model_work.h"

namespace tessera::planner {

// Seconds of compute of one block and micro-batch.
struct BlockTime {
  double products = 0.0;  // each of forward, gradient of the input, gradient of the weights
  double weight_products = 0.0;
  // Parts of the forward's products: those that make the MLP's hidden state, and the one that reads it.
  double into_mlp = 0.0, out_of_mlp = 0.0;
  double attention = 0.0, attention_backward = 0.0;
  double elementwise = 0.0, elementwise_backward = 0.0, gradient_sums = 0.0;
  double recompute = 0.0;

  double forward() const { return products + attention + elementwise; }
  double input_gradient() const { return products + attention_backward + elementwise_backward + recompute; }
  double weight_gradient() const { return weight_products + gradient_sums; }
  double compute() const { return forward() + input_gradient() + weight_gradient(); }
};

// The ranks that work together along each axis.
struct AxisGroups {
  Group tensor, context, experts;
  Group shards;       // hold different parts of the parameters
  Group near_shards;  // of those, the ones that gather for the backward
  Group copies;       // hold the same part
  Group pipeline, world;
};

struct StepParts {
  AxisGroups groups;
  BlockTime block;
  // By which starting the kernels of a block takes longer than running them, forward and backward.
  double forward_starts = 0.0, backward_starts = 0.0;
  double starts() const { return forward_starts + backward_starts; }
  double head = 0.0;  // of a micro-batch: the products with the vocabulary, and the loss

  // Messages of a block and micro-batch. Tensor parallelism's exchanges are those that do not hide behind
  // products.
  Transfer tensor_forward, tensor_backward;
  bool is_ring = false;  // keys and values go around while attention computes; else two all-to-alls a pass
  Transfer context_forward, context_backward;
  Transfer expert_exchange;  // two in the forward, two in the backward
  Transfer stage_message;    // hidden states or their gradients

  // Messages of a block's parameters, and of the root's: the embedding and the head, which lie on one stage
  // each.
  Transfer gather, gather_back, scatter, reduce;
  Transfer root_gather, root_scatter, root_reduce;
  bool gathers_updates = false;  // ZeRO stage 1 or 2 gathers whole parameters once a step
  double scatters = 1.0;         // of each block in a step: 1, or one for each micro-batch

  double optimizer = 0.0, offload = 0.0, host = 0.0;  // at the end of the step
  double contention = 0.0;                            // share by which collectives lengthen the compute
};

// The fitted numbers, apart so that a fit can vary them.
struct Fitted {
  double half_dim = kHalfDim;
};

// Needs a choice with 1 <= each size that the cluster holds, and a precision that the device has.
StepParts step_parts(const ModelWork& work, const Cluster& cluster, const Job& job, const Choice& choice,
                     const Software& software = kTessera, const Fitted& fitted = {});

}  // namespace tessera::planner
