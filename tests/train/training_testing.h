// Helpers that train tiny models without an output folder.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <ATen/ATen.h>

#include "tessera/core/rng.h"
#include "tessera/data/loader_options.h"
#include "tessera/train/setup/recipe_values.h"
#include "tessera/train/step/training.h"

#include "tests/testing/tiny_model.h"
#include "tests/train/train_testing.h"

namespace tessera::testing {

// Returns rows of 2 to 17 tokens, some of them without a label.
inline data::RowSet random_rows(int64_t count, int64_t vocab) {
  const auto store = std::make_shared<data::RowStore>();
  data::RowSet rows{store, {}};
  for (int64_t row = 0; row < count; ++row) {
    const CounterRng rng(3, stream_of("rows"), static_cast<uint64_t>(row));
    std::vector<int32_t> ids(2 + rng.below(0, 16));
    for (size_t i = 0; i < ids.size(); ++i) {
      ids[i] = static_cast<int32_t>(rng.below(1 + i, static_cast<uint64_t>(vocab)));
    }
    std::vector<int32_t> labels = ids;
    for (size_t i = 0; i < labels.size() / 3; ++i) labels[i] = static_cast<int32_t>(kIgnoreLabel);
    rows.rows.push_back(store->size());
    store->append(ids, labels);
  }
  return rows;
}

// A training over eleven rows, so that epochs end in the midst of a step's accumulation.
struct TinyTraining {
  TinyTraining(const config::Recipe& recipe, const std::shared_ptr<comm::Communicator>& world)
      : mesh(world, train::parallel_dims(recipe, world->size())),
        training(recipe, mesh,
                 std::make_unique<data::Loader>(
                     random_rows(11, TinyModel().vocab),
                     data::train_loader_options(recipe, mesh.coordinate(parallel::kAxisDp),
                                                mesh.size(parallel::kAxisDp))),
                 train::set_up_model(recipe, mesh)) {}

  // Runs the steps up to number `last` and returns their losses.
  std::vector<double> run_to(int64_t last) {
    std::vector<double> losses;
    while (training.state().step < last) losses.push_back(training.step().loss);
    return losses;
  }
  // Returns copies of all tensors.
  std::vector<at::Tensor> values() {
    std::vector<at::Tensor> values;
    for (const auto& tensor : training.tensors()) values.push_back(tensor.get().clone());
    return values;
  }

  parallel::DeviceMesh mesh;
  train::Training training;
};

}  // namespace tessera::testing
