// A check that a call throws the right tessera::Error.
#pragma once

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/core/error.h"

namespace tessera::testing {

// Expects that the call throws an Error of `kind` whose text contains every one of `parts`.
template <typename Call>
void expect_error(ErrorKind kind, const std::vector<std::string>& parts, Call call) {
  try {
    call();
    ADD_FAILURE() << "no error was thrown; expected one with '" << (parts.empty() ? "" : parts.front())
                  << "'";
  } catch (const Error& error) {
    EXPECT_EQ(static_cast<int>(error.kind()), static_cast<int>(kind)) << error.what();
    for (const std::string& part : parts) EXPECT_THAT(error.what(), ::testing::HasSubstr(part));
  }
}

}  // namespace tessera::testing
