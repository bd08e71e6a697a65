// Chooses which tests of a program run: those of the files that its command line names.
#pragma once

#include <cstdio>
#include <map>
#include <string>

#include <gtest/gtest.h>

namespace tessera::testing {

// Returns "attention" for ".../tests/ops/attention_test.cpp", and "leaf" for "leaf_tests.h".
inline std::string name_of_test_file(const std::string& path) {
  std::string name = path.substr(path.rfind('/') + 1);
  name.resize(name.rfind('.'));
  for (const std::string suffix : {"_test", "_tests"}) {
    if (name.ends_with(suffix)) name.resize(name.size() - suffix.size());
  }
  return name;
}

// Takes the words that gtest has left on the command line for names of test files, and has only their tests
// run; all run where there are none. Returns false, and says why, where a name is no file's of this program.
inline bool choose_files(int argc, char** argv) {
  if (argc < 2) return true;
  std::map<std::string, std::string> tests_of_files;
  const ::testing::UnitTest& unit_test = *::testing::UnitTest::GetInstance();
  for (int i = 0; i < unit_test.total_test_suite_count(); ++i) {
    const ::testing::TestSuite& suite = *unit_test.GetTestSuite(i);
    for (int j = 0; j < suite.total_test_count(); ++j) {
      const ::testing::TestInfo& test = *suite.GetTestInfo(j);
      tests_of_files[name_of_test_file(test.file())] += std::string(":") + suite.name() + '.' + test.name();
    }
  }
  std::string filter;
  for (int i = 1; i < argc; ++i) {
    const auto found = tests_of_files.find(argv[i]);
    if (found == tests_of_files.end()) {
      std::fprintf(stderr, "%s has no tests of a file '%s_test.cpp'; it has those of:", argv[0], argv[i]);
      for (const auto& [name, tests] : tests_of_files) std::fprintf(stderr, " %s", name.c_str());
      std::fprintf(stderr, "\n");
      return false;
    }
    filter += found->second;
  }
  GTEST_FLAG_SET(filter, filter.substr(1));
  return true;
}

}  // namespace tessera::testing
