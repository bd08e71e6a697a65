// The check that any layout equals one process, for every transport.
#pragma once

#include <algorithm>
#include <cmath>

#include <gtest/gtest.h>

#include "tessera/ops/row_codes.h"
#include "tessera/parallel/activation_checkpoint.h"
#include "tessera/parallel/device_mesh.h"
#include "tessera/parallel/fully_shard.h"

#include "tests/parallel/toy_model.h"

namespace tessera::testing {

struct ParityCase {
  std::string name;
  int64_t dp_replicate = 1, hpz = 1;
  parallel::ShardOptions options;
  bool freeze_some = false;
  bool checkpoint_activations = false;
  int64_t accumulation = 1;
};

inline void freeze_some_parameters(ToyModel& model) {
  model.embedding.set_requires_grad(false);
  model.blocks[0]->up.set_requires_grad(false);
  model.blocks[1]->down.set_requires_grad(false);
  for (auto& parameter : model.blocks[2]->parameters()) parameter.set_requires_grad(false);
}

// Losses and gradients of two steps, with a plain gradient step between, by one process over all the data.
struct Reference {
  std::vector<double> losses;
  std::map<std::string, at::Tensor> gradients;
};

inline constexpr double kToyRate = 0.05;

// Returns the parameters, each once.
inline std::vector<at::Tensor> distinct_parameters(const ToyModel& model) {
  std::vector<at::Tensor> parameters;
  for (const at::Tensor& parameter : model.parameters()) {
    const auto is_same = [&](const at::Tensor& other) { return other.is_same(parameter); };
    if (std::ranges::none_of(parameters, is_same)) parameters.push_back(parameter);
  }
  return parameters;
}

// Puts what becomes of the parameters in codes of 8 bits in their place, and returns their values before.
inline std::vector<at::Tensor> code_parameters(const ToyModel& model) {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> before;
  for (const at::Tensor& parameter : distinct_parameters(model)) {
    before.push_back(parameter.detach().clone());
    if (parameter.dim() < 2) continue;
    ops::RowCodes(8, parameter.numel() / parameter.size(0)).round(parameter.detach(), before.back());
  }
  return before;
}

// `in_codes`: every step computes with coded parameters, and updates the parameters themselves.
inline Reference one_process(const ParityCase& parity, int64_t num_batches, bool in_codes = false) {
  ToyModel model;
  if (parity.freeze_some) freeze_some_parameters(model);
  Reference reference;
  for (int step = 0; step < 2; ++step) {
    double total = 0;
    for (auto& parameter : model.parameters()) parameter.mutable_grad().reset();
    std::vector<at::Tensor> values;
    if (in_codes) values = code_parameters(model);
    for (int64_t i = 0; i < num_batches; ++i) {
      const ToyBatch batch = toy_batch(i + step);
      const at::Tensor loss = model.loss(batch.words, batch.labels);
      total += loss.item<double>();
      if (loss.requires_grad()) loss.backward();
    }
    reference.losses.push_back(total);
    for (const auto& entry : model.named_parameters()) {
      const at::Tensor grad = entry.value().grad();
      if (grad.defined()) reference.gradients[std::to_string(step) + entry.key()] = grad.clone();
    }
    const at::NoGradGuard no_grad;
    const std::vector<at::Tensor> parameters = distinct_parameters(model);
    for (size_t i = 0; i < parameters.size(); ++i) {
      const at::Tensor parameter = parameters[i].detach();
      if (in_codes) parameter.copy_(values[i]);
      if (parameters[i].grad().defined()) parameter.add_(parameters[i].grad(), -kToyRate);
    }
  }
  return reference;
}

inline void check_parity(const std::shared_ptr<comm::Communicator>& world, const ParityCase& parity) {
  SCOPED_TRACE(parity.name + ", " + std::to_string(world->size()) + " ranks");
  const int64_t num_batches = world->size() * parity.accumulation;
  // Ranks that have their parameters whole compute with the parameters themselves.
  const bool in_codes =
      parity.options.mixed_precision.codes_parameters && world->size() > parity.dp_replicate;
  const Reference reference = one_process(parity, num_batches, in_codes);

  ParallelDims dims;
  dims.dp_replicate = parity.dp_replicate;
  dims.hpz = parity.hpz;
  const parallel::DeviceMesh mesh(world, dims);
  ToyModel model;
  if (parity.freeze_some) freeze_some_parameters(model);
  if (parity.checkpoint_activations) {
    for (const auto& block : model.blocks) parallel::checkpoint_activations(*block);
  }
  parallel::ShardOptions options = parity.options;
  options.average_gradients = false;
  const auto sharded =
      parallel::fully_shard(model,
                            {mesh.group(parallel::kAxisFsdp), mesh.group(parallel::kAxisDpReplicate),
                             mesh.group(parallel::kAxisHpz)},
                            model.units(), options);

  for (int step = 0; step < 2; ++step) {
    sharded->zero_grad();
    const at::Tensor total = at::zeros({1}, at::kDouble);
    for (int64_t m = 0; m < parity.accumulation; ++m) {
      sharded->set_is_last_micro_batch(m + 1 == parity.accumulation);
      const ToyBatch batch = toy_batch(m * world->size() + world->rank() + step);
      const at::Tensor loss = model.loss(batch.words, batch.labels);
      total.add_(loss.detach());
      loss.backward();
    }
    world->all_reduce(total);
    EXPECT_NEAR(total.item<double>(), reference.losses[step], 1e-10 * std::abs(reference.losses[step]));
    for (const auto& parameter : sharded->parameters()) {
      const auto expected = reference.gradients.find(std::to_string(step) + parameter.name);
      if (!parameter.requires_grad) {
        EXPECT_FALSE(parameter.tile.grad().defined()) << parameter.name;
        continue;
      }
      ASSERT_TRUE(world->size() == 1 || parameter.tile.grad().defined()) << parameter.name;
      if (expected == reference.gradients.end()) {
        // The parameter took no part in the loss.
        EXPECT_TRUE(!parameter.tile.grad().defined() || parameter.tile.grad().eq(0).all().item<bool>());
        continue;
      }
      const at::Tensor mine = parameter.tile.grad();
      const at::Tensor theirs = expected->second.narrow(0, parameter.box.offset[0], parameter.box.size[0]);
      ASSERT_EQ(mine.sizes(), theirs.sizes()) << parameter.name;
      const double scale = expected->second.norm().item<double>();
      EXPECT_LE((mine - theirs).norm().item<double>(), 1e-10 * scale) << parameter.name << ", step " << step;
      const at::NoGradGuard no_grad;
      const at::Tensor tile = parameter.tile.detach();
      tile.add_(mine, -kToyRate);
    }
  }
}

// Returns the cases: ZeRO-3, ZeRO-2, ZeRO-1 and DDP, and their products with replication if the number of
// ranks allows it.
inline std::vector<ParityCase> parity_cases(int64_t num_ranks) {
  std::vector<ParityCase> stages;
  stages.push_back({.name = "zero3"});
  stages.push_back({.name = "zero2"});
  stages.back().options.reshard_after_forward = false;
  stages.push_back({.name = "zero1"});
  stages.back().options.reshard_after_forward = false;
  stages.back().options.reduce_every_backward = false;
  stages.push_back({.name = "zero3 with one reduction a step"});
  stages.back().options.reduce_every_backward = false;
  stages.push_back({.name = "ddp", .dp_replicate = num_ranks});
  if (num_ranks % 2 == 0) stages.push_back({.name = "hsdp", .dp_replicate = num_ranks / 2});
  for (const int64_t hpz : {2, 3}) {
    if (num_ranks % hpz == 0 && hpz < num_ranks)
      stages.push_back({.name = "secondary shards over " + std::to_string(hpz), .hpz = hpz});
  }

  for (size_t i = 0, count = stages.size(); i < count; ++i) {
    ParityCase parity = stages[i];
    parity.name += ", parameters in codes";
    parity.options.mixed_precision.codes_parameters = true;
    stages.push_back(parity);
  }

  std::vector<ParityCase> cases;
  for (const ParityCase& stage : stages) {
    for (const int64_t accumulation : {1, 3}) {
      for (const bool freeze : {false, true}) {
        for (const bool checkpoint : {false, true}) {
          ParityCase parity = stage;
          parity.accumulation = accumulation;
          parity.freeze_some = freeze;
          parity.checkpoint_activations = checkpoint;
          if (parity.options.mixed_precision.codes_parameters && accumulation == 1 && checkpoint) continue;
          parity.name += ", accumulation " + std::to_string(accumulation) + (freeze ? ", frozen" : "") +
                         (checkpoint ? ", checkpointed" : "");
          cases.push_back(parity);
        }
      }
    }
  }
  return cases;
}

}  // namespace tessera::testing
