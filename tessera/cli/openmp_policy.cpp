#include "tessera/cli/openmp_policy.h"

#include <cstdlib>
#include <cstring>

#include <unistd.h>

namespace tessera::cli {
namespace {

// Some 50 microseconds: longer than the pause between two operations of a step, far shorter than a time
// slice.
constexpr char kShortSpin[] = "GOMP_SPINCOUNT=1000";

// A sanitizer is not ready that early.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

bool is_variable(const char* entry, const char* name) {
  const size_t length = std::strlen(name);
  return std::strncmp(entry, name, length) == 0 && entry[length] == '=';
}

// Runs before the initialisers of all libraries: system calls and plain memory only.
void start_with_short_spin(int, char** arguments, char** environment) {
  constexpr size_t kMostVariables = 4096;
  static char* variables[kMostVariables + 2];
  static char self[4096];
  size_t count = 0;
  for (; environment[count] != nullptr; ++count) {
    if (count == kMostVariables || is_variable(environment[count], "OMP_WAIT_POLICY") ||
        is_variable(environment[count], "GOMP_SPINCOUNT")) {
      return;
    }
    variables[count] = environment[count];
  }
  static char added[sizeof kShortSpin];
  std::memcpy(added, kShortSpin, sizeof kShortSpin);
  variables[count] = added;
  const ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
  if (length <= 0) return;
  // Started through the dynamic loader, whose arguments are not these.
  const char* name = std::strrchr(self, '/');
  if (name != nullptr && std::strncmp(name, "/ld-", 4) == 0) return;
  // Where it fails the program goes on as it is.
  execve(self, arguments, variables);
}

[[gnu::section(".preinit_array"), gnu::used]] void (*const before_libraries)(int, char**,
                                                                             char**) = start_with_short_spin;

#endif

}  // namespace

std::string describe_wait_policy() {
  const char* policy = std::getenv("OMP_WAIT_POLICY");
  const char* spin = std::getenv("GOMP_SPINCOUNT");
  if (spin != nullptr) {
    const bool is_default = std::strcmp(spin, std::strchr(kShortSpin, '=') + 1) == 0 && policy == nullptr;
    return std::string("sleep after a spin of ") + spin + " (GOMP_SPINCOUNT" +
           (is_default ? ", tessera's default)" : ")");
  }
  if (policy != nullptr) return std::string(policy) + " (OMP_WAIT_POLICY)";
  return "spin for milliseconds: set OMP_WAIT_POLICY=passive where others use the machine";
}

}  // namespace tessera::cli
