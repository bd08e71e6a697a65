// Tests that the losses of datasets are those of their rows alone, under any layout, and change no other
// number.
#include <algorithm>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tessera/train/setup/recipe_values.h"
#include "tessera/train/step/step.h"

#include "tests/testing/mpi_world.h"
#include "tests/train/training_testing.h"

namespace tessera::train {
namespace {

constexpr int64_t kRows = 11;

// Returns eleven rows of three datasets, "one", "two" and "one-2", or only those of the dataset `only`.
data::RowSet rows_of(bool marks_datasets, const std::string& only = "") {
  const data::RowSet all = testing::random_rows(kRows, testing::TinyModel().vocab);
  const auto store = std::make_shared<data::RowStore>();
  data::RowSet rows{store, {}};
  for (int64_t row = 0; row < kRows; ++row) {
    if (marks_datasets && (row == 0 || row == 4 || row == 9)) store->begin_dataset(row == 4 ? "two" : "one");
    store->append(all.store->row(row));
    const std::string name = row < 4 ? "one" : row < 9 ? "two" : "one-2";
    if (only.empty() || name == only) rows.rows.push_back(row);
  }
  // The order is not that of the datasets.
  std::reverse(rows.rows.begin(), rows.rows.end());
  return rows;
}

struct Cut {
  const char* what;
  int64_t config::Recipe::*axis;  // the axis along which all ranks lie; null for dp_shard
  bool packing;
};

class DatasetLossTest : public ::testing::TestWithParam<Cut> {
 protected:
  void SetUp() override {
    if (folder_.is_owner()) testing::write_tiny_model(folder_ / "model", {});
    world_->barrier();
  }
  config::Recipe recipe_of(const Cut& setup) const {
    config::Recipe recipe;
    recipe.base_model = folder_ / "model";
    recipe.dtype = config::ComputeType::Float64;
    recipe.learning_rate = 0.03;
    recipe.max_steps = 4;
    recipe.sample_packing = setup.packing;
    recipe.sequence_len = 24;
    recipe.gradient_accumulation_steps = 2;
    if (setup.axis != nullptr) {
      recipe.*setup.axis = world_->size();
      recipe.gradient_accumulation_steps = 2 * world_->size();
    }
    return recipe;
  }
  bool is_possible(const Cut& setup) const {
    // The model has too few heads and layers for more ranks along the other axes.
    return setup.axis == nullptr || setup.axis == &config::Recipe::context_parallel_size ||
           world_->size() <= 2;
  }

  std::shared_ptr<comm::Communicator> world_ = testing::world();
  testing::SharedFolder folder_{world_};
};

data::Loader loader_of(const config::Recipe& recipe, const parallel::DeviceMesh& mesh, data::RowSet rows) {
  return {std::move(rows), data::train_loader_options(recipe, mesh.coordinate(parallel::kAxisDp),
                                                      mesh.size(parallel::kAxisDp))};
}

Evaluated evaluate_rows(const config::Recipe& recipe, const std::shared_ptr<comm::Communicator>& world,
                        const data::RowSet& rows) {
  const parallel::DeviceMesh mesh(world, parallel_dims(recipe, world->size()));
  TrainedModel trained = set_up_model(recipe, mesh);
  data::Loader loader = loader_of(recipe, mesh, rows);
  return evaluate(trained, mesh, loader, [](int64_t) { return true; }).value();
}

TEST_P(DatasetLossTest, EvaluationTellsEachDataset) {
  if (!is_possible(GetParam())) return;
  const config::Recipe recipe = recipe_of(GetParam());
  const Evaluated all = evaluate_rows(recipe, world_, rows_of(true));
  EXPECT_EQ(all.loss, evaluate_rows(recipe, world_, rows_of(false)).loss) << "the same to the bit";
  ASSERT_EQ(all.datasets.size(), 3U);
  config::Recipe alone = recipe_of({"", nullptr, GetParam().packing});
  double sum = 0.0;
  int64_t label_tokens = 0;
  for (const DatasetLoss& dataset : all.datasets) {
    const Evaluated only = evaluate_rows(alone, comm::Communicator::single(), rows_of(true, dataset.name));
    EXPECT_TRUE(only.datasets.empty());
    EXPECT_NEAR(dataset.loss, only.loss.value(), 1e-10) << dataset.name;
    sum += dataset.loss * static_cast<double>(dataset.label_tokens);
    label_tokens += dataset.label_tokens;
  }
  EXPECT_NEAR(all.loss.value(), sum / static_cast<double>(label_tokens), 1e-10);
  EXPECT_EQ(all.datasets[0].name, "one");
  EXPECT_EQ(all.datasets[1].name, "two");
  EXPECT_EQ(all.datasets[2].name, "one-2");
}

TEST_P(DatasetLossTest, StepsTellEachDataset) {
  if (!is_possible(GetParam())) return;
  const config::Recipe recipe = recipe_of(GetParam());
  const parallel::DeviceMesh mesh(world_, parallel_dims(recipe, world_->size()));
  Training marked(recipe, mesh, std::make_unique<data::Loader>(loader_of(recipe, mesh, rows_of(true))),
                  set_up_model(recipe, mesh));
  Training plain(recipe, mesh, std::make_unique<data::Loader>(loader_of(recipe, mesh, rows_of(false))),
                 set_up_model(recipe, mesh));
  for (int step = 0; step < 3; ++step) {
    const StepMetrics told = marked.step(), want = plain.step();
    EXPECT_EQ(told.loss, want.loss);
    EXPECT_EQ(told.grad_norm, want.grad_norm);
    EXPECT_TRUE(want.datasets.empty());
    double sum = 0.0;
    int64_t label_tokens = 0;
    for (const DatasetLoss& dataset : told.datasets) {
      sum += dataset.loss * static_cast<double>(dataset.label_tokens);
      label_tokens += dataset.label_tokens;
    }
    EXPECT_EQ(label_tokens, told.label_tokens);
    EXPECT_NEAR(sum / static_cast<double>(label_tokens), told.loss, 1e-10);
  }
}

INSTANTIATE_TEST_SUITE_P(Layouts, DatasetLossTest,
                         ::testing::Values(Cut{"shard", nullptr, false}, Cut{"packed", nullptr, true},
                                           Cut{"cp", &config::Recipe::context_parallel_size, false},
                                           Cut{"tp", &config::Recipe::tensor_parallel_size, true},
                                           Cut{"pp", &config::Recipe::pipeline_parallel_size, false}),
                         [](const auto& info) { return info.param.what; });

TEST(MetricsWindowTest, AddsUpDatasets) {
  StepMetrics one, two;
  one.step_s = two.step_s = 1.0;
  one.datasets = {{"a", 2.0, 3}, {"b", 1.0, 1}};
  two.datasets = {{"a", 4.0, 1}};
  MetricsWindow window;
  window.add(one);
  window = MetricsWindow::from_json(window.to_json());
  window.add(two);
  const StepMetrics line = window.take();
  ASSERT_EQ(line.datasets.size(), 2U);
  EXPECT_DOUBLE_EQ(line.datasets[0].loss, 2.5);
  EXPECT_EQ(line.datasets[0].label_tokens, 4);
  EXPECT_DOUBLE_EQ(line.datasets[1].loss, 1.0);
}

}  // namespace
}  // namespace tessera::train
