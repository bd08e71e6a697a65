// Stub libraries, which replace real ones in tests, and a check of which libraries are refused.
#pragma once

#include <stdexcept>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/core/shared_library.h"

namespace tessera::testing {

// Returns the object that the function `symbol` of the stub at `path` returns. Through it tests control the
// stub and see how it was called.
template <class Stub>
Stub& stub_of(const std::string& path, const char* symbol) {
  SharedLibrary library({path});
  Stub& (*give)() = nullptr;
  library.find(give, symbol);
  if (!library.is_usable()) throw std::runtime_error(library.why_not());
  return give();
}

// Expects Library::open() to open nothing and to give the reason in one line: for a missing file, for a
// library without the function `first`, and for the stub at `older`, whose version is `version`.
template <class Library>
void expect_others_refused(const std::string& first, const std::string& older, const std::string& version) {
  const auto why_not = [](const std::string& path) {
    std::string why;
    EXPECT_FALSE(Library::open(why, path));
    EXPECT_EQ(why.find('\n'), std::string::npos) << why;
    return why;
  };
  EXPECT_THAT(why_not("/nowhere/a_library.so"), ::testing::StartsWith("/nowhere/a_library.so: "));
  EXPECT_EQ(why_not("libm.so.6"), "libm.so.6 has no " + first);
  EXPECT_EQ(why_not(older), older + " is of version " + version);
}

}  // namespace tessera::testing
