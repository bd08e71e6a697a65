// The reasons for which a test may be skipped. A test that is skipped for any other reason fails
// (ReportSkips), so that no test is lost silently; `./dev test` ends with the reasons and how many tests were
// skipped for each.
#pragma once

#include <algorithm>
#include <array>
#include <cstdlib>
#include <string>
#include <string_view>

#include <dlfcn.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

namespace tessera::testing {

namespace skip {
inline constexpr char kSharedData[] = "TESSERA_SHARED_DATA names no folder with the data";
inline constexpr char kSanitizer[] = "a sanitizer does not allow it";
inline constexpr char kPermission[] = "this user or machine does not permit it";
inline constexpr char kExchange[] = "this file system cannot exchange two folders";
inline constexpr char kUnits[] = "this processor lacks the units";
inline constexpr char kLowerIsa[] = "these units are not below the best of this machine";
inline constexpr char kLibTorch[] = "these products run in LibTorch here";
inline constexpr char kLibArrow[] = "this build has no libarrow";
inline constexpr char kLibEdit[] = "this machine has no libedit";
inline constexpr char kNvcc[] = "this build had no nvcc";
inline constexpr char kCudnn[] = "this build found no cuDNN 9.19";
inline constexpr char kNccl[] = "this build found no header of NCCL";
inline constexpr char kShell[] = "this machine lacks the shell";
inline constexpr char kValidator[] = "this machine has no HTML validator (TESSERA_VNU)";
inline constexpr char kCuda[] = "needs a CUDA device";
inline constexpr char kCudaPart[] = "this LibTorch has its CUDA part";
inline constexpr char kNoDriver[] = "needs a machine without an NVIDIA driver";
inline constexpr char kPlainOps[] = "without kernels nobody promises these bits";

inline constexpr std::array kReasons = {
    kSharedData, kSanitizer, kPermission, kExchange, kUnits,     kLowerIsa, kLibTorch, kLibArrow, kLibEdit,
    kNvcc,       kCudnn,     kNccl,       kShell,    kValidator, kCuda,     kCudaPart, kNoDriver, kPlainOps};
}  // namespace skip

// True if the program runs with a sanitizer; the tests' own sources need not have been compiled with it.
inline const bool kHasSanitizer =
    dlsym(RTLD_DEFAULT, "__asan_init") != nullptr || dlsym(RTLD_DEFAULT, "__tsan_init") != nullptr;

// Adds a line to the file that TESSERA_TEST_SKIPS names, if any. A test that goes on without one of its parts
// calls this too. `reason` is one of skip::kReasons.
inline void report_skip(std::string_view reason, const std::string& test) {
  const char* path = std::getenv("TESSERA_TEST_SKIPS");
  if (path == nullptr || *path == '\0') return;
  const std::string line = std::string(reason) + '\t' + test + '\n';
  const int file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (file < 0 || write(file, line.data(), line.size()) != static_cast<ssize_t>(line.size())) {
    ADD_FAILURE() << "cannot write " << path;
  }
  if (file >= 0) close(file);
}

inline std::string current_test() {
  const ::testing::TestInfo* test = ::testing::UnitTest::GetInstance()->current_test_info();
  return test == nullptr ? "?" : std::string(test->test_suite_name()) + '.' + test->name();
}

// Reports every skipped test, and fails the tests that give a reason which is not in skip::kReasons.
class ReportSkips : public ::testing::EmptyTestEventListener {
 public:
  explicit ReportSkips(bool writes) : writes_(writes) {}

 private:
  void OnTestEnd(const ::testing::TestInfo& info) override {
    const ::testing::TestResult& result = *info.result();
    if (!result.Skipped()) return;
    std::string_view reason;
    for (int i = 0; i < result.total_part_count(); ++i) {
      const ::testing::TestPartResult& part = result.GetTestPartResult(i);
      if (!part.skipped()) continue;
      const std::string_view words = part.message();
      const auto found = std::find_if(skip::kReasons.begin(), skip::kReasons.end(),
                                      [&](const char* each) { return words.find(each) != words.npos; });
      if (found != skip::kReasons.end()) reason = *found;
    }
    if (reason.empty()) {
      ADD_FAILURE() << current_test() << " was skipped for a reason that is not among skip::kReasons";
    } else if (writes_) {
      report_skip(reason, current_test());
    }
  }

  bool writes_;
};

}  // namespace tessera::testing
