// Checks that a family's reader of config.json refuses bad ones.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tessera/core/error.h"

namespace tessera::models {

struct BadCase {
  const char* name;
  nlohmann::json patch;  // changes to a good config; null removes a key
  const char* code;
  const char* in_message;
};

inline constexpr const char* kConfig = "E-MODEL-CONFIG";
inline constexpr const char* kUnsupported = "E-MODEL-UNSUPPORTED";

// Expects that `read` of the config with the case's patch throws the case's error, which names the file.
template <class Read>
void expect_refused(nlohmann::json config, const BadCase& bad, const Read& read) {
  config.merge_patch(bad.patch);
  try {
    read(config);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::Model);
    EXPECT_EQ(error.code(), bad.code) << error.what();
    EXPECT_THAT(error.what(), ::testing::HasSubstr("config.json"));
    EXPECT_THAT(error.what(), ::testing::HasSubstr(bad.in_message));
  }
}

}  // namespace tessera::models
