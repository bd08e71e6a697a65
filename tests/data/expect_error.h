// Expectations on errors.
#pragma once

#include <string>

#include <gmock/gmock.h>

#include "tessera/core/error.h"

namespace tessera::data {

// Runs `action`, which must throw an Error of this code, and returns its text.
template <typename Action>
std::string error_text(const std::string& code, Action&& action) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown, expected " << code;
  return "";
}

}  // namespace tessera::data
