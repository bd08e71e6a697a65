// Runs of recipes that follow the curves of Transformers and PEFT (tests/reference).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/train/train_testing.h"

namespace tessera::train {

using testing::reference_data;

struct Curve {
  nlohmann::json options, steps;
};

// Reads the curve of the file `name` among the reference data.
inline Curve read_curve(const std::string& name) {
  std::ifstream file(reference_data(name + ".json"));
  const auto document = nlohmann::json::parse(file);
  return {document.at("options"), document.at("steps")};
}

// Returns a recipe with four sequences per step, shared by `ranks` ranks: 1, 2 or 4.
inline std::string recipe_text(const nlohmann::json& options, const std::string& dtype, int64_t ranks,
                               const std::string& output_dir) {
  const int64_t micro_batch = ranks > 2 ? 1 : 2;
  EXPECT_EQ(options.at("micro_batch_size").get<int64_t>() *
                options.at("gradient_accumulation_steps").get<int64_t>(),
            4);
  return "base_model: " + reference_data("models/" + options.at("model").get<std::string>()) +
         "\ndatasets:\n  - path: " + reference_data(options.value("rows", "training/rows.jsonl")) +
         "\nshuffle_merged_datasets: false\nsample_packing: false\nsequence_len: 64\nlr_scheduler: cosine\n"
         "optimizer: adamw_torch\ndtype: " +
         dtype + "\nmicro_batch_size: " + std::to_string(micro_batch) +
         "\ngradient_accumulation_steps: " + std::to_string(4 / (micro_batch * ranks)) +
         "\nmax_steps: " + options.at("max_steps").dump() +
         "\nlearning_rate: " + options.at("learning_rate").dump() +
         "\nwarmup_steps: " + options.at("warmup_steps").dump() +
         "\nweight_decay: " + options.at("weight_decay").dump() +
         "\nmax_grad_norm: " + options.at("max_grad_norm").dump() +
         "\nadam_beta1: " + options.at("adam_beta1").dump() +
         "\nadam_beta2: " + options.at("adam_beta2").dump() +
         "\nadam_epsilon: 1.0e-8\noutput_dir: " + output_dir + "\n";
}

struct Tolerance {
  double loss = 0.0, grad_norm = 0.0;  // relative differences
};

// Compares the metrics of a run with the curve; `suffix` chooses the curve in float64 ("_f64").
inline void expect_curve(const std::string& metrics_file, const Curve& curve, const std::string& suffix,
                         const Tolerance& tolerance) {
  const auto steps = testing::metrics_with(metrics_file, "loss");
  ASSERT_EQ(steps.size(), curve.steps.size());
  double worst_loss = 0.0, worst_norm = 0.0;
  for (size_t i = 0; i < steps.size(); ++i) {
    SCOPED_TRACE("step " + std::to_string(i + 1));
    const auto& want = curve.steps[i];
    EXPECT_EQ(steps[i].at("step").get<size_t>(), i + 1);
    EXPECT_NEAR(steps[i].at("lr").get<double>(), want.at("learning_rate").get<double>(), 1e-12);
    EXPECT_EQ(steps[i].at("tokens"), want.at("tokens"));
    EXPECT_EQ(steps[i].at("label_tokens"), want.at("label_tokens"));
    const double loss = want.at("loss" + suffix), norm = want.at("grad_norm" + suffix);
    EXPECT_NEAR(steps[i].at("loss").get<double>(), loss, tolerance.loss * loss);
    EXPECT_NEAR(steps[i].at("grad_norm").get<double>(), norm, tolerance.grad_norm * norm);
    worst_loss = std::max(worst_loss, std::abs(steps[i].at("loss").get<double>() - loss) / loss);
    worst_norm = std::max(worst_norm, std::abs(steps[i].at("grad_norm").get<double>() - norm) / norm);
  }
  std::printf("largest relative deviation: loss %.1e, gradient norm %.1e\n", worst_loss, worst_norm);
}

}  // namespace tessera::train
