// Tests of a folder share a process: each begins with the environment that the process began with.
#pragma once

#include <cstdlib>
#include <map>
#include <string>

#include <gtest/gtest.h>
#include <unistd.h>

namespace tessera::testing {

// Puts the environment's variables back behind every test that has changed some.
class RestoreEnvironment : public ::testing::EmptyTestEventListener {
  using Variables = std::map<std::string, std::string>;

  static Variables variables() {
    Variables result;
    for (char** each = environ; each != nullptr && *each != nullptr; ++each) {
      const std::string text = *each;
      const size_t equals = text.find('=');
      if (equals != std::string::npos) result[text.substr(0, equals)] = text.substr(equals + 1);
    }
    return result;
  }
  void OnTestEnd(const ::testing::TestInfo&) override {
    const Variables now = variables();
    for (const auto& [name, value] : now) {
      if (!before_.contains(name)) unsetenv(name.c_str());
    }
    for (const auto& [name, value] : before_) {
      const auto found = now.find(name);
      if (found == now.end() || found->second != value) setenv(name.c_str(), value.c_str(), 1);
    }
  }

  Variables before_ = variables();
};

}  // namespace tessera::testing
