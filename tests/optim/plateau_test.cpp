#include "tessera/optim/plateau.h"

#include <fstream>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/testing/paths.h"

namespace tessera::optim {
namespace {

TEST(PlateauTest, TheValuesAreThoseOfPyTorch) {
  std::ifstream file(testing::source_folder() + "/tests/reference/data/plateaus.json");
  const auto document = nlohmann::json::parse(file);
  const double peak = document.at("learning_rate");
  ASSERT_GT(document.at("cases").size(), 20u);
  for (const auto& reference : document.at("cases")) {
    const nlohmann::json& keys = reference.at("options");
    SCOPED_TRACE(keys.dump());
    PlateauOptions options;
    options.factor = keys.value("factor", options.factor);
    options.patience = keys.value("patience", options.patience);
    options.threshold = keys.value("threshold", options.threshold);
    options.cooldown = keys.value("cooldown", options.cooldown);
    options.min_lr = keys.value("min_lr", options.min_lr);
    if (keys.value("threshold_mode", "rel") == "abs") options.mode = PlateauMode::Absolute;
    Plateau plateau;
    const std::vector<double> metrics = reference.at("metrics"), values = reference.at("values");
    for (size_t i = 0; i < metrics.size(); ++i) {
      plateau.judge(options, peak, metrics[i]);
      EXPECT_NEAR(peak * plateau.factor, values[i], 1e-12 * peak) << "metric " << i;
    }
  }
}

}  // namespace
}  // namespace tessera::optim
