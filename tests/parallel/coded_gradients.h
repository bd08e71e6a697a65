// The check that sums of coded gradients are those of their formula, for every transport.
#pragma once

#include <gtest/gtest.h>

#include "tests/parallel/parity.h"

namespace tessera::testing {

// Returns what becomes of a gradient in codes of 4 bits, as float32; gradients of one dim stay as they are.
inline at::Tensor through_codes(const at::Tensor& gradient) {
  if (gradient.dim() < 2) return gradient;
  const at::Tensor to = at::empty(gradient.sizes(), gradient.options().dtype(at::kFloat));
  ops::RowCodes(4, gradient.numel() / gradient.size(0)).round(to, gradient.to(at::kFloat));
  return to;
}

// Returns an upper bound of the error that coding a gradient makes: half of the scale of its row, which is a
// block.
inline at::Tensor largest_error(const at::Tensor& gradient) {
  return gradient.abs().view({gradient.size(0), -1}).amax(1, true) / 14.0;
}

// Compares the gradients of one backward with the sums of what each rank's gradient becomes in codes, and
// those with the exact sums. `machine`: ranks of a machine, for two stages; 1 for one.
inline void check_coded_gradients(const std::shared_ptr<comm::Communicator>& world, int64_t machine,
                                  bool averages) {
  SCOPED_TRACE(std::to_string(world->size()) + " ranks, " + std::to_string(machine) + " on a machine");
  const int64_t num_ranks = world->size();
  std::map<std::string, at::Tensor> exact, coded, bounds;
  for (int64_t first = 0; first < num_ranks; first += machine) {
    std::map<std::string, at::Tensor> sums;  // of one machine
    for (int64_t rank = first; rank < first + machine; ++rank) {
      ToyModel model;
      const ToyBatch batch = toy_batch(rank);
      model.loss(batch.words, batch.labels).backward();
      for (const auto& entry : model.named_parameters()) {
        const at::Tensor gradient = entry.value().grad();
        if (!gradient.defined()) continue;
        const auto add = [&](std::map<std::string, at::Tensor>& to, const at::Tensor& value) {
          const auto [place, is_new] = to.try_emplace(entry.key(), value.to(at::kDouble));
          if (!is_new) place->second = place->second + value;
        };
        add(exact, gradient);
        add(sums, through_codes(gradient));
        if (gradient.dim() > 1) add(bounds, largest_error(gradient));
      }
    }
    for (const auto& [name, sum] : sums) {
      const at::Tensor again = machine > 1 ? through_codes(sum) : sum;
      const auto [place, is_new] = coded.try_emplace(name, again.to(at::kDouble));
      if (!is_new) place->second = place->second + again;
      if (machine > 1 && sum.dim() > 1) bounds[name] = bounds[name] + largest_error(sum);
    }
  }

  ParallelDims dims;
  dims.machine = machine;
  const parallel::DeviceMesh mesh(world, dims);
  ToyModel model;
  parallel::ShardOptions options;
  options.average_gradients = averages;
  options.mixed_precision.codes_gradients = true;
  const auto sharded =
      parallel::fully_shard(model,
                            {mesh.group(parallel::kAxisFsdp), mesh.group(parallel::kAxisDpReplicate),
                             mesh.group(parallel::kAxisHpz), mesh.group(parallel::kAxisMachine),
                             mesh.group(parallel::kAxisMachines)},
                            model.units(), options);
  const ToyBatch batch = toy_batch(world->rank());
  model.loss(batch.words, batch.labels).backward();
  const double factor = averages ? static_cast<double>(num_ranks) : 1.0;
  int64_t num_inexact = 0;
  for (const auto& parameter : sharded->parameters()) {
    const at::Tensor mine = parameter.tile.grad() * factor;
    if (!exact.contains(parameter.name)) {
      EXPECT_TRUE(mine.eq(0).all().item<bool>()) << parameter.name;
      continue;
    }
    const auto own = [&](const at::Tensor& whole) {
      return whole.narrow(0, parameter.box.offset[0], parameter.box.size[0]);
    };
    const at::Tensor wanted = own(coded[parameter.name]), sum = own(exact[parameter.name]);
    // Sums are taken in float32.
    EXPECT_TRUE(((mine - wanted).abs() <= 2e-6 * exact[parameter.name].abs().max()).all().item<bool>())
        << parameter.name;
    if (sum.dim() < 2 || sum.numel() == 0) continue;
    const at::Tensor bound = own(bounds[parameter.name]) * (1.0 + 1e-4);
    EXPECT_TRUE(((mine - sum).view({sum.size(0), -1}).abs() <= bound).all().item<bool>()) << parameter.name;
    num_inexact += (mine - sum).abs().gt(1e-4 * sum.abs().amax()).any().item<bool>() ? 1 : 0;
  }
  EXPECT_GT(num_inexact, 0) << "the gradients were sent in codes";
}

}  // namespace tessera::testing
