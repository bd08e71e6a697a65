// Helpers of the tests of config/.
#pragma once

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/config/load_recipe.h"
#include "tessera/core/error.h"

#include "tests/testing/paths.h"

namespace tessera::config {

inline std::string recipes_folder() { return testing::source_folder() + "/tests/config/recipes"; }

// A complete recipe of three lines, to which tests append from line 4 on.
inline const std::string kMinimal =
    "base_model: m\n"
    "datasets: [{path: d.jsonl, type: alpaca}]\n"
    "learning_rate: 1e-4\n";

// Returns the message of the Config error that reading `text` throws; the test fails if there is none.
inline std::string message_of(const std::string& text, const std::vector<std::string>& overrides = {}) {
  try {
    parse_recipe(text, "r.yaml", overrides);
  } catch (const Error& error) {
    EXPECT_EQ(exit_code(error.kind()), 2) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "no error for:\n" << text;
  return "";
}

// Returns the text that parsing writes to standard error.
inline std::string warnings_of(const std::string& text, const std::vector<std::string>& overrides = {}) {
  ::testing::internal::CaptureStderr();
  try {
    parse_recipe(text, "r.yaml", overrides);
  } catch (const Error& error) {
    ADD_FAILURE() << error.what();
  }
  return ::testing::internal::GetCapturedStderr();
}

}  // namespace tessera::config
